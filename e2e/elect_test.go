package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	for end := time.Now().Add(patience(limit)); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if all := p.printedPrimaries(); len(all) > 0 && wanted(all[len(all)-1]) {
			return all[len(all)-1]
		}
	}
	p.t.Fatalf("the observer does not tell of %s within %v; it told\n%s%s", what, limit, &p.stdout, &p.stderr)
	return primaryLine{}
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
	if got := w.must("cat", path); got != "one:80" {
		t.Errorf("the file says %q", got)
	}

	candidate("two").waitNoted(w, path, "two")
	three := candidate("three", "--priority", "3")
	three.waitFor("primary", 20*time.Second) // one gives way to a higher priority, and two is passed over
	if code := one.wait(20 * time.Second); code != 5 {
		t.Errorf("one gave way with exit %d, want its command's own 5; stderr %s", code, &one.stderr)
	}
	second := observer.waitPrimary("three", 20*time.Second, names("three:80"))
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}

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
		if time.Now().After(end) {
			p.t.Fatalf("%s is not among the candidates; stderr %s", name, &p.stderr)
		}
	}
}

// The sequencer is in the file while the lock is held, and not afterwards.
func TestSequencerFile(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	file := filepath.Join(t.TempDir(), "sequencer")
	holder := w.ctl("acquire", w.path("a"), "--sequencer-file", file, "--", "sh", "-c", `[ "$(cat "$0")" = "$CHUBBY_SEQUENCER" ] && echo equal; exec sleep 600`, file)
	holder.waitFor("equal", 20*time.Second)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if r := w.do("sequencer", "check", strings.TrimSpace(string(text))); r.code != 0 {
		t.Errorf("sequencer check: exit %d, %s", r.code, r.err)
	}
	w.must("lock", "break", w.path("a"), "--reason", "drill", "--yes")
	if code := holder.wait(20 * time.Second); code != 74 {
		t.Errorf("exit %d, want 74; stderr %s", code, &holder.stderr)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if r := w.do("acquire", w.path("a"), "--sequencer-file", "/no/such/directory/seq", "--", "true"); r.code != 2 || !strings.Contains(r.err, "--sequencer-file") {
		t.Errorf("a file that cannot be written: exit %d, %s", r.code, r.err)
	}
}
