package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What a replica measures, and traces, can be switched off while it runs, in a cell that is built with an overlay
// (go build -overlay): each place that counts, or looks at a clock in order to measure, asks first. Two cells would be compared
// otherwise, and one start of a cell is faster than another of the same for as long as it runs, by more than measuring costs.

// switchVariable names the directory of the sockets that switch; see the overlay of package steps.
const switchVariable = "CHUBBY_BENCH_SWITCH"

var (
	//go:embed overlay/steps.go.txt
	stepsOverlay string
	//go:embed overlay/cell.go.txt
	cellOverlay string
)

// edit is what is to be in a file of the source once, and by what it is replaced.
type edit struct{ file, old, new string }

// switching has all that is measured for metrics, and traced, ask whether it is to be.
func switching() []edit {
	const ask = "			if !measured() {\n				return\n			}\n"
	return []edit{
		{"cell/epochs.go", "		Metrics:    e.metrics.master,\n", "		Metrics:    switchedMetrics{e.metrics.master},\n"},
		{"cell/epochs.go", "		Stopwatch:  stopwatch(),\n", "		Stopwatch:  switchedWatch(),\n"},
		{"cell/epochs.go", "			Ended: e.metrics.proofEnded,\n", "			Ended: switchedProofs(e.metrics.proofEnded),\n"},
		{"cell/epochs.go", "e.metrics.entrySized, e.times", "switchedSizes(e.metrics.entrySized), e.times"},
		{"cell/start.go", "		Stopwatch:          stopwatch(),\n", "		Stopwatch:          switchedWatch(),\n"},
		{"cell/start.go", "		Answered:           r.metrics.calls.answered,\n", "		Answered:           switchedAnswers(r.metrics.calls.answered),\n"},
		{"cell/start.go", "		Tracer:             newTracer(r.cfg),\n", "		Tracer:             newSwitchedTracer(r.cfg),\n"},
		{"cell/start.go", "		Clock:   r.clock,\n		Appended: func(a disk.Appended) {\n", "		Clock:   switchedClock(r.clock),\n		Appended: func(a disk.Appended) {\n" + ask},
		{"cell/start.go", "r.fsm.OnApplied(r.clock, func(a fsm.Applied) {\n", "r.fsm.OnApplied(switchedClock(r.clock), func(a fsm.Applied) {\n" + ask},
	}
}

// overlaySwitch writes the files of a replica whose measuring can be switched off into dir, and returns the file that has the Go
// command build with them.
func overlaySwitch(repo, dir string) (string, error) {
	texts := map[string]string{"cell/internal/steps/switch.go": stepsOverlay, "cell/switch.go": cellOverlay}
	for _, m := range switching() {
		if _, read := texts[m.file]; !read {
			text, err := os.ReadFile(filepath.Join(repo, m.file))
			if err != nil {
				return "", err
			}
			texts[m.file] = string(text)
		}
		if n := strings.Count(texts[m.file], m.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once: bring bench/switch.go up to date", m.file, m.old, n)
		}
		texts[m.file] = strings.Replace(texts[m.file], m.old, m.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		from, err := filepath.Abs(filepath.Join(repo, file))
		if err != nil {
			return "", err
		}
		to, err := filepath.Abs(filepath.Join(dir, strings.ReplaceAll(file, "/", "-")))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// measure has all replicas measure and trace from now on, or not.
func (c *chubby) measure(ctx context.Context, on bool) error {
	state := byte('0')
	if on {
		state = '1'
	}
	replicas, err := devReplicas(c.file)
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if err := switchProcess(ctx, filepath.Join(filepath.Dir(c.program), strconv.Itoa(r.PID)), state); err != nil {
			return fmt.Errorf("switch the measuring of %s: %w", r.ID, err)
		}
	}
	return nil
}

func switchProcess(ctx context.Context, socket string, state byte) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte{state}); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if answer[0] != state {
		return fmt.Errorf("it answered %q to %q", answer, state)
	}
	return nil
}
