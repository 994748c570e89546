package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// acquire gives a shell the token, CMD's own exit code, and exit codes of its own that
// differ from each other.
func TestAcquire(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	r := w.do("acquire", w.path("a"), "--", "sh", "-c", "echo $CHUBBY_TOKEN; exit 7")
	token, err := strconv.ParseUint(strings.TrimSpace(r.out), 10, 64)
	if r.code != 7 || err != nil || token == 0 {
		t.Fatalf("exit %d, token %q (%v), stderr %s; want exit 7 and a positive integer", r.code, r.out, err, r.err)
	}

	holder := w.ctl("acquire", w.path("a"), "--reason", "nightly backup", "--", "sh", "-c", "echo held; sleep 600")
	holder.waitFor("held", 20*time.Second)
	if r = w.do("acquire", w.path("a"), "--try", "--", "true"); r.code != 75 || !strings.Contains(r.err, "nightly backup") {
		t.Errorf("--try: exit %d, stderr %s; want 75 and who holds it, and why", r.code, r.err)
	}
	began := time.Now()
	if r = w.do("acquire", w.path("a"), "--wait", "1s", "--", "true"); r.code != 124 || time.Since(began) > patience(5*time.Second) {
		t.Errorf("--wait 1s: exit %d after %v, stderr %s; want 124", r.code, time.Since(began), r.err)
	}
	if r = w.do("acquire", w.path("b"), "--", "no-such-command-anywhere"); r.code != 127 {
		t.Errorf("a CMD that does not exist: exit %d, stderr %s; want 127", r.code, r.err)
	}
	if r = w.do("-o", "json", "locks", w.path("b")); r.code != 0 || strings.TrimSpace(r.out) != "" {
		t.Errorf("a CMD that does not exist took the lock: %s", r.out)
	}
	if r = w.do("acquire", w.path("c"), "--", "/dev/null"); r.code != 126 {
		t.Errorf("a CMD that cannot be run: exit %d, stderr %s; want 126", r.code, r.err)
	}

	// Signals reach CMD, and its end by one is 128 and the signal's number.
	if err := holder.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := holder.wait(20 * time.Second); code != 130 {
		t.Errorf("after SIGINT: exit %d, want 130", code)
	}
	if r = w.do("acquire", w.path("a"), "--try", "--", "true"); r.code != 0 {
		t.Errorf("the lock was not released: exit %d, stderr %s", r.code, r.err)
	}
}

// A job that several clocks start at about the same time runs once, although it
// takes only a moment: the lock is kept for a while.
func TestAtLeast(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	began := time.Now()
	first := w.ctl("acquire", w.path("a"), "--try", "--at-least", "3s", "--", "sh", "-c", "echo ran; exit 6")
	first.waitFor("ran", 20*time.Second)
	if r := w.do("acquire", w.path("a"), "--try", "--", "true"); r.code != 75 {
		t.Errorf("another, a moment later: exit %d, want 75; %s", r.code, r.err)
	}
	if code := first.wait(20 * time.Second); code != 6 || time.Since(began) < 3*time.Second {
		t.Errorf("exit %d after %v, want CMD's own 6, after 3s", code, time.Since(began))
	}
	w.must("acquire", w.path("a"), "--try", "--", "true")
}

// Without CMD the first line says all that a script needs, and the lock is
// held until a signal.
func TestAcquireWithoutCommand(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	holder := w.ctl("-o", "json", "acquire", w.path("svc"))
	holder.waitFor("\n", 20*time.Second)
	var line struct {
		Path, Mode, Sequencer, Session string
		Token, Epoch                   uint64
	}
	if err := json.Unmarshal([]byte(holder.stdout.String()), &line); err != nil || line.Path != w.path("svc") || line.Mode != "exclusive" ||
		line.Token == 0 || line.Session == "" || line.Epoch == 0 {
		t.Fatalf("%v: %s", err, &holder.stdout)
	}
	if r := w.do("sequencer", "check", line.Sequencer); r.code != 0 {
		t.Errorf("sequencer check: exit %d, stderr %s", r.code, r.err)
	}
	if out := w.must("sequencer", "show", line.Sequencer); !strings.Contains(out, fmt.Sprint(line.Token)) {
		t.Errorf("sequencer show: %s", out)
	}
	if out := w.must("locks"); !strings.Contains(out, w.path("svc")) || !strings.Contains(out, line.Session) {
		t.Errorf("locks: %s", out)
	}
	if err := holder.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := holder.wait(20 * time.Second); code != 0 {
		t.Errorf("after SIGTERM: exit %d, want 0; stderr %s", code, &holder.stderr)
	}
	if r := w.do("sequencer", "check", line.Sequencer); r.code != 3 {
		t.Errorf("sequencer check after the release: exit %d, want 3; %s%s", r.code, r.out, r.err)
	}
}

// A holder that is killed keeps its lock for its lease and its lock-delay; a holder that
// releases hands it over at once.
func TestHolderKilled(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	holder := w.ctl("acquire", w.path("a"), "--lease", "2s", "--lock-delay", "3s", "--kill-after", "1s", "-o", "json")
	holder.waitFor("\n", 20*time.Second)
	var line struct{ Token uint64 }
	if err := json.Unmarshal([]byte(holder.stdout.String()), &line); err != nil {
		t.Fatal(err)
	}
	waiter := w.ctl("acquire", w.path("a"), "--", "sh", "-c", "echo token $CHUBBY_TOKEN")
	waitForWaiters(t, w, w.path("a"), 1)
	killed := time.Now()
	w.kill9(holder.cmd.Process.Pid)
	waiter.waitFor("token", 20*time.Second)
	after := time.Since(killed)
	var token uint64
	if _, err := fmt.Sscanf(waiter.stdout.String(), "token %d", &token); err != nil || token <= line.Token {
		t.Errorf("the next token is %q, the one before was %d", &waiter.stdout, line.Token)
	}
	if after < 3*time.Second || after > patience(8*time.Second) {
		t.Errorf("the waiter had the lock %v after the holder was killed; want 3 s to 8 s", after)
	}
	t.Logf("lease 2 s, lock-delay 3 s: handed on %v after kill -9", after.Round(time.Millisecond))
}

// waitForWaiters waits until the lock has that many waiters.
func waitForWaiters(t *testing.T, w *world, path string, n int) {
	t.Helper()
	for end := time.Now().Add(patience(10 * time.Second)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var line struct{ Waiters []struct{ Place int } }
		out := w.must("-o", "json", "locks", path)
		if out != "" {
			if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &line); err != nil {
				t.Fatalf("locks: %v\n%s", err, out)
			}
		}
		if len(line.Waiters) >= n {
			return
		}
	}
	t.Fatalf("nobody came to wait for %s", path)
}
