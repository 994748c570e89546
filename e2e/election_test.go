package e2e

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// TestSixSteps runs the README's election (Chubby §2.6): three candidates
// compete for one lock (1, 2), one becomes the primary and writes its name into
// the file (3), an observer reads the file at each event (4), and the primary's
// sequencer is valid as long as it is the primary and never afterwards (5, 6).
func TestSixSteps(t *testing.T) {
	besideOthers(t)
	checkElectionInREADME(t)
	w := start(t)
	w.must("touch", "/ls/local/primary")
	read := w.observe("/ls/local/primary")

	var candidates []*process
	for range 3 {
		cmd := command(bin("election"))
		cmd.Env = append(cmd.Env, "CHUBBY_CELLS=local="+w.servers())
		candidates = append(candidates, launch(t, cmd, (*exec.Cmd).Start))
	}
	var past []string // sequencers of earlier primaries
	for len(candidates) > 0 {
		primary, sequencer := w.elected(candidates)
		who := strings.TrimSuffix(strings.Fields(primary.stdout.String())[1], ",")
		select {
		case got := <-read:
			if got != who {
				t.Errorf("the observer read %q; the primary is %q", got, who)
			}
		case <-time.After(patience(20 * time.Second)):
			t.Fatalf("the observer heard nothing of primary %s", who)
		}
		if r := w.do("sequencer", "check", sequencer); r.code != 0 {
			t.Errorf("the primary's sequencer: exit %d, %s", r.code, r.err)
		}
		for _, old := range past {
			if r := w.do("sequencer", "check", old); r.code != 3 {
				t.Errorf("the sequencer of an earlier primary: exit %d, want 3: %s", r.code, r.err)
			}
		}
		past = append(past, sequencer)
		_ = primary.cmd.Process.Signal(syscall.SIGINT) // so that the next candidate is elected
		primary.wait(20 * time.Second)
		candidates = slices.DeleteFunc(candidates, func(p *process) bool { return p == primary })
	}
}

// checkElectionInREADME checks that the README shows examples/election word for word.
func checkElectionInREADME(t *testing.T) {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../examples/election/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, campaign, _ := strings.Cut(string(source), "func campaign(")
	if lines := strings.Count(campaign, "\n"); lines >= 40 {
		t.Errorf("the election has %d lines, want less than 40", lines)
	}
	if !strings.Contains(string(readme), "func campaign("+campaign) {
		t.Error("the README does not show examples/election as it is")
	}
}

// observe reads a file at each event of its contents and passes on what it
// reads, each text once.
func (w *world) observe(path string) <-chan string {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, done := make(chan string, 100), make(chan struct{})
	h, err := w.client(client.Config{}).Open(ctx, path, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(done)
		last := ""
		for _, err := range h.Events(ctx) {
			if err != nil {
				return // the test has ended, or notices that nothing comes any more
			}
			if text, _, err := h.Contents(ctx); err == nil && string(text) != last {
				last = string(text)
				read <- last
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	return read
}

// elected waits until one of the candidates is the primary, and returns it with
// its sequencer. The others still wait then.
func (w *world) elected(candidates []*process) (*process, string) {
	w.t.Helper()
	for end := time.Now().Add(patience(30 * time.Second)); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var primaries []*process
		for _, p := range candidates {
			if strings.HasSuffix(p.stdout.String(), "\n") {
				primaries = append(primaries, p)
			}
		}
		switch len(primaries) {
		case 0:
			continue
		case 1:
			_, sequencer, _ := strings.Cut(strings.TrimSpace(primaries[0].stdout.String()), "sequencer: ")
			return primaries[0], sequencer
		}
		w.t.Fatalf("%d primaries at a time", len(primaries))
	}
	w.t.Fatal("nobody became the primary within 30 s")
	return nil, ""
}
