package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
)

// primaryLine is one line of elect --observe -o json.
type primaryLine struct {
	Path, Value string
	Vacant      bool
	Token       uint64
	Holder      struct{ PID int }
}

// printedPrimaries returns the lines that an observer has printed so far.
func (p *process) printedPrimaries() (all []primaryLine) {
	p.t.Helper()
	for line := range strings.Lines(p.stdout.String()) {
		var r primaryLine
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return all // the line is not complete yet
		}
		all = append(all, r)
	}
	return all
}

// waitPrimary waits until the observer's last line is the wanted one.
func (p *process) waitPrimary(what string, limit time.Duration, wanted func(primaryLine) bool) primaryLine {
	p.t.Helper()
	var all []primaryLine
	noErr(p.t, p.prints(what, limit, func() bool {
		all = p.printedPrimaries()
		return len(all) > 0 && wanted(all[len(all)-1])
	}))
	return all[len(all)-1]
}

// An election on the command line. The file holds the value; the priority decides who comes next;
// an operator may choose the next; an observer sees every primary, and the vacancy after a primary
// that was killed as soon as its session ends.
func TestElect(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	path := w.path("primary")
	observer := w.ctl("-o", "json", "elect", "--observe", path)
	observer.waitPrimary("no file yet", 20*time.Second, func(r primaryLine) bool { return r.Vacant })
	names := func(value string) func(primaryLine) bool {
		return func(r primaryLine) bool { return !r.Vacant && r.Value == value }
	}
	candidate := func(name string, flags ...string) *process {
		args := append([]string{"elect", path, "--value", name + ":80", "--name", name, "--lease", "2s", "--lock-delay", "4s", "--kill-after", "1s"}, flags...)
		return w.ctl(append(args, "--", "sh", "-c", "trap 'exit 5' TERM; echo primary; while :; do sleep 0.05; done")...)
	}
	one := candidate("one", "--yield")
	one.waitFor("primary", 20*time.Second)
	first := observer.waitPrimary("one", 20*time.Second, names("one:80"))
	equal(t, w.must("cat", path), "one:80", "the file says %q")

	candidate("two").waitNoted(w, path, "two")
	three := candidate("three", "--priority", "3")
	three.waitFor("primary", 20*time.Second) // one gives way to a higher priority, and two is passed over
	one.exits(t, 20*time.Second, 5, "the one that gave way, by its own command")
	second := observer.waitPrimary("three", 20*time.Second, names("three:80"))
	failIf(t, second.Token <= first.Token, "token %d after %d", second.Token, first.Token)

	candidate("four").waitNoted(w, path, "four")
	w.must("elect", "--nominate", "four", path)
	if out := w.must("elect", "--candidates", path); !strings.Contains(out, "chosen") || strings.Index(out, "three") > strings.Index(out, "four") {
		t.Errorf("the candidates:\n%s", out)
	}
	if r := w.do("elect", "--nominate", "nobody", path); r.code == 0 || !strings.Contains(r.err, "two") {
		t.Errorf("a candidate that does not exist: exit %d, %s", r.code, r.err)
	}
	w.kill9(three.cmd.Process.Pid)
	observer.waitPrimary("a vacancy", 20*time.Second, func(r primaryLine) bool { return r.Vacant })
	observer.waitPrimary("four, the chosen one", 20*time.Second, names("four:80"))
}

// waitNoted waits until a candidate is among those that are listed.
func (p *process) waitNoted(w *world, path, name string) {
	p.t.Helper()
	for end := time.Now().Add(patience(20 * time.Second)); !strings.Contains(w.must("elect", "--candidates", path), name); {
		stopIf(p.t, time.Now().After(end), "%s is not among the candidates; stderr %s", name, &p.stderr)
	}
}

// The sequencer is in the file while the lock is held, and not afterwards.
func TestSequencerFile(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	file := filepath.Join(t.TempDir(), "sequencer")
	holder := w.ctl("acquire", w.path("a"), "--sequencer-file", file, "--", "sh", "-c", `[ "$(cat "$0")" = "$CHUBBY_SEQUENCER" ] && echo equal; exec sleep 600`, file)
	holder.waitFor("equal", 20*time.Second)
	text := must(os.ReadFile(file))(t)
	w.do("sequencer", "check", strings.TrimSpace(string(text))).exits(t, 0, "sequencer check")
	w.must("lock", "break", w.path("a"), "--reason", "drill", "--yes")
	holder.exits(t, 20*time.Second, 74, "in the end")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if r := w.do("acquire", w.path("a"), "--sequencer-file", "/no/such/directory/seq", "--", "true"); r.code != 2 || !strings.Contains(r.err, "--sequencer-file") {
		t.Errorf("a file that cannot be written: exit %d, %s", r.code, r.err)
	}
}

// TestSixSteps runs the README's election (Chubby §2.6): three candidates compete for one lock (1, 2), one becomes the
// primary and writes its name into the file (3), an observer reads the file at each event (4), and the primary's
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
			failIf(t, got != who, "the observer read %q; the primary is %q", got, who)
		case <-time.After(patience(20 * time.Second)):
			t.Fatalf("the observer heard nothing of primary %s", who)
		}
		w.do("sequencer", "check", sequencer).exits(t, 0, "the primary's sequencer")
		for _, old := range past {
			w.do("sequencer", "check", old).exits(t, 3, "the sequencer of an earlier primary")
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
	readme := must(os.ReadFile("../README.md"))(t)
	source := must(os.ReadFile("../examples/election/main.go"))(t)
	_, campaign, _ := strings.Cut(string(source), "func campaign(")
	if lines := strings.Count(campaign, "\n"); lines >= 40 {
		t.Errorf("the election has %d lines, want less than 40", lines)
	}
	if !strings.Contains(string(readme), "func campaign("+campaign) {
		t.Error("the README does not show examples/election as it is")
	}
}

// observe reads a file at each event of its contents and passes on what it reads, each text once.
func (w *world) observe(path string) <-chan string {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, done := make(chan string, 100), make(chan struct{})
	h, err := w.client(client.Config{}).Open(ctx, path, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
	noErr(w.t, err)
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

// When CMD ends while the cell does not answer, chubbyctl ends with CMD's exit code as soon as the
// lease has run out, and at once after an interrupt.
func TestFarewellInAnOutage(t *testing.T) {
	besideOthers(t)
	w := start(t, "--replicas", "1")
	dir := t.TempDir()
	holder := func(name, lease string) *process {
		script := fmt.Sprintf("echo up; while [ ! -e %s ]; do sleep 0.05; done; echo over; exit 5", filepath.Join(dir, "go"))
		p := w.ctl("--timeout", "3m", "acquire", "/ls/local/"+name, "--lease", lease, "--lock-delay", "1m", "--", "sh", "-c", script)
		p.waitFor("up", 20*time.Second)
		return p
	}
	short, long := holder("short", "4s"), holder("long", "1m")
	for _, r := range w.replicas() {
		processes.Halt(t, r.PID)
		t.Cleanup(func() { _ = syscall.Kill(r.PID, syscall.SIGCONT) })
	}
	noErr(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	equal(t, short.endsWithin(time.Minute), 5, "after the end of the lease: exit %d")
	long.waitFor("trying to release", 10*time.Second)
	noErr(t, long.cmd.Process.Signal(syscall.SIGINT))
	equal(t, long.endsWithin(10*time.Second), 5, "after Ctrl-C: exit %d")
}
