package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/tenure"
)

// execute runs a command line against a cell that does not exist, and returns its output and its
// error.
func execute(t *testing.T, in io.Reader, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	root, _ := newRootCommand()
	root.SetArgs(append([]string{"--servers", "127.0.0.1:1", "--timeout", "50ms"}, args...))
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// Errors in a command line are found before the cell is asked, and say what to write instead.
func TestCommandLineFaults(t *testing.T) {
	long := strings.Repeat("x", api.MaxReason+1)
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"", 2, "needs one of the commands"},
		{"acquir", 2, "did you mean acquire?"},
		{"session", 2, "needs one of the commands"},
		{"session sl", 2, "did you mean ls?"},
		{"-o xml ls", 2, "want text, wide, json or yaml"},
		{"--timeout 0s ls", 2, "--timeout"},
		{"ls --wat", 2, "--wat"},
		{"ls a b", 2, "is not expected"},
		{"cat", 2, "an argument is missing"},
		{"cat ls/local/motd", 2, "a path begins with /ls/"},
		{"cat /ls/local/a//b", 2, "is empty"},
		{"put /ls/local/a", 2, "standard input"},
		{"put /ls/local/a b c", 2, "standard input"},
		{"put /ls/local/a b --ephemeral --if-generation 3", 2, "--ephemeral and --if-generation do not go together"},
		{"tree --depth 0", 2, "--depth"},
		{"acquire", 2, "which lock?"},
		{"lock /ls/local/a -- true", 2, "'chubbyctl acquire /ls/local/a -- CMD'"},
		{"lock a -- true", 2, "'chubbyctl acquire PATH -- CMD'"},
		{"lock acquire a", 2, "'chubbyctl acquire PATH -- CMD'"},
		{"lock brek a", 2, "did you mean break?"},
		{"session rm s1", 2, "'chubbyctl session end ID'"},
		{"cell top", 2, "'chubbyctl top'"},
		{"kv get a", 2, "'chubbyctl cat PATH'"},
		{"acquire /ls/local/a --busy-exit-code 9 -- true", 2, "is for --try and --wait"},
		{"acquire /ls/local/a --try --busy-exit-code 256 -- true", 2, "want 0 to 255"},
		{"acquire /ls/local/a --quiet -v -- true", 2, "--quiet and --verbose do not go together"},
		{"acquire /ls/local/a true", 2, "put -- before the command"},
		{"acquire /ls/local/a --", 2, "no command behind --"},
		{"acquire /ls/local -- true", 2, "root directory"},
		{"acquire /ls/local/a --try --wait 3s -- true", 2, "choose one"},
		{"acquire /ls/local/a --wait -3s -- true", 2, "--wait"},
		{"acquire /ls/local/a --lease 500ms -- true", 2, "--lease"},
		{"acquire /ls/local/a --lease 2m -- true", 2, "--lease"},
		{"acquire /ls/local/a --lock-delay 61s -- true", 2, "--lock-delay"},
		{"acquire /ls/local/a --kill-after -1s -- true", 2, "--kill-after"},
		{"acquire /ls/local/a --reason " + long, 2, "--reason"},
		{"acquire /ls/local/a --jeopardy-signal NONE -- true", 2, "not a signal"},
		{"acquire /ls/local/a --jeopardy-signal USR1", 2, "for a command"},
		{"acquire /ls/local/a --at-least -1s -- true", 2, "--at-least"},
		{"acquire /ls/local/a --at-least 1s", 2, "--at-least"},
		{"acquire /ls/local/a --safe-signal NONE -- true", 2, "--safe-signal"},
		{"acquire /ls/local/a --lease 1s --lock-delay 0 -- true", 2, "--kill-after"},
		{"acquire /ls/local/a -- no-such-command-anywhere", 127, "not found"},
		{"acquire /ls/local/a -- /dev/null", 126, "not executable"},
		{"acquire /ls/local/a true /ls/local/b", 2, "put -- before the command"},
		{"acquire /ls/local/a /ls/local -- true", 2, "root directory"},
		{"acquire /ls/local/a /ls/local/b /ls/local/a -- true", 2, "is there twice"},
		{"acquire /ls/local/a /ls/foo/a -- true", 2, "different cells"},
		{"acquire /ls/local/a /ls/local/b --sequencer-file x -- true", 2, "--sequencer-file"},
		{"acquire /ls/local/a --retry", 2, "--retry"},
		{"acquire /ls/local/a /ls/local/b --give-way -- true", 2, "--give-way is for one lock, and 2 are named"},
		{"acquire /ls/local/a --give-way --at-least 1m -- true", 2, "choose one"},
		{"semaphore", 2, "which directory?"},
		{"semaphore /ls/local/a /ls/local/b --slots 1 -- true", 2, "put -- before the command"},
		{"semaphore /ls/local/a -- true", 2, "--slots is missing"},
		{"semaphore /ls/local/a --slots 101 -- true", 2, "--slots"},
		{"semaphore /ls/local/a --slots 0 -- true", 2, "--slots"},
		{"semaphore /ls/local/a --slots 1 --try --wait 3s -- true", 2, "choose one"},
		{"semaphore /ls/local/a --slots 1 --resize -- true", 2, "--resize"},
		{"semaphore /ls/local --slots 1 --resize", 2, "root directory"},
		{"members", 2, "needs one of the commands"},
		{"members ls", 2, "an argument is missing"},
		{"members join", 2, "which directory?"},
		{"members join /ls/local/up --name a/b -- true", 2, "--name"},
		{"members join /ls/local/up --name= -- true", 2, "--name"},
		{"members join /ls/local/up --lease 500ms -- true", 2, "--lease"},
		{"elect /ls/local/a --show --observe", 2, "choose one"},
		{"elect /ls/local/a --show -- true", 2, "runs no command"},
		{"leader /ls/local/a", 2, "elect --show"},
		{"elect /ls/local/a --value x --name a/b", 2, "--name"},
		{"elect /ls/local/a --value x --name ..", 2, "--name"},
		{"elect /ls/local/acl/ops --value x", 2, "access control list"},
		{"elect /ls/local/a --observe=false", 2, "--value is missing"},
		{"elect /ls/local/a --candidates=false --value x -- no-such-command-anywhere", 127, "not found"},
		{"sequencer check", 2, "an argument is missing"},
		{"cell status a/b", 2, "not a cell's name"},
	} {
		_, err := execute(t, nil, strings.Fields(c.args)...)
		if exitCode(err) != c.code || err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("chubbyctl %s: exit code %d (%v), want %d with %q", c.args, exitCode(err), err, c.code, c.text)
		}
	}
}

// A cell that cannot be reached is not an error of usage, and is reported within --timeout.
func TestUnreachableCell(t *testing.T) {
	for _, args := range [][]string{
		{"ls"}, {"cat", "/ls/local/a"}, {"locks"}, {"cell", "status"}, {"acquire", "/ls/local/a", "--", "true"}, {"acquire", "/ls/local/a", "--try"},
	} {
		if _, err := execute(t, nil, args...); exitCode(err) != exitUnavailable {
			t.Errorf("chubbyctl %q: exit code %d (%v), want %d", args, exitCode(err), err, exitUnavailable)
		}
	}
}

// Chubby §4.3: a file has at most 256 kilobytes; a larger value is not sent.
func TestPutRefusesLargeValues(t *testing.T) {
	for size, want := range map[int]int{api.MaxContents: exitUnavailable, api.MaxContents + 1: exitFailed} {
		_, err := execute(t, strings.NewReader(strings.Repeat("x", size)), "put", "/ls/local/a", "-")
		if exitCode(err) != want || (want == exitFailed) != errors.Is(err, api.TooLarge) {
			t.Errorf("put of %d bytes: exit code %d (%v), want %d", size, exitCode(err), err, want)
		}
	}
}

func TestSequencerThatIsNone(t *testing.T) {
	out, err := execute(t, nil, "sequencer", "check", "nonsense")
	if exitCode(err) != exitMismatch || !strings.HasPrefix(out, "not valid: ") {
		t.Errorf("check: exit code %d (%v), %q", exitCode(err), err, out)
	}
	if _, err := execute(t, nil, "sequencer", "show", "nonsense"); exitCode(err) != exitMismatch {
		t.Errorf("show: exit code %d (%v)", exitCode(err), err)
	}
	const seq = "chubby1:x:42:8d7d12148ef07c5c275c7061888f1e24:466140f4:/ls/local/h"
	out, err = execute(t, nil, "-o", "json", "sequencer", "show", seq)
	if want := `{"path":"/ls/local/h","mode":"exclusive","token":42,"cell_id":"8d7d12148ef07c5c275c7061888f1e24"}`; err != nil || strings.TrimSpace(out) != want {
		t.Errorf("show: %v, %s", err, out)
	}
	if _, err := execute(t, nil, "sequencer", "check", seq); exitCode(err) != exitUnavailable {
		t.Errorf("check without a cell: exit code %d (%v): nothing is known of the sequencer", exitCode(err), err)
	}
}

// By default CMD rides out an outage of about 11 seconds.
func TestBudgetOfTheDefaults(t *testing.T) {
	o := &workOptions{terms: tenure.Terms{LockDelay: api.DefaultLockDelay, KillAfter: defaultKillAfter}}
	b := o.terms.Budget(api.DefaultLease)
	if got := b.Outage().Round(time.Second); got != 11*time.Second || !strings.Contains(b.String(), "10.8s") {
		t.Errorf("CMD rides out %v (%v), want about 11s", got, b)
	}
}

// Settings that are accepted leave time, at the worst moment, to stop CMD and for a margin: CMD is
// never asked to end before the worst moment itself.
func TestBudgetLeavesRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, least, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, name))
		}
		lease := draw("lease", api.MinLease, api.MaxLease)
		o := &workOptions{terms: tenure.Terms{LockDelay: draw("lock-delay", 0, api.MaxLockDelay), KillAfter: draw("kill-after", 0, time.Minute)}}
		b := o.terms.Budget(lease)
		worst := float64(lease)*5/12 + float64(o.terms.LockDelay)
		needed := float64(o.terms.KillAfter) + float64(client.Margin(lease, o.terms.LockDelay))
		fits := worst*(1-api.ClockRateBound) > needed+1
		if passes := b.Check() == nil; passes && !fits && worst*(1-api.ClockRateBound) < needed-1 || !passes && fits {
			t.Errorf("budget %+v: passes %t, leaves room %t", b, passes, fits)
		}
		if b.Refresh() > lease/12 || b.Refresh() <= 0 {
			t.Errorf("refresh every %v with a lease of %v", b.Refresh(), lease)
		}
	})
}

// told runs f in a bubble, in the wait for a lock, and returns what was written.
func told(t *testing.T, output term.Format, f func(w *lockWait)) []string {
	t.Helper()
	var b bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		o := &workOptions{globals: &globals{output: output}, path: api.MustParsePath("/ls/foo/a"), err: &b}
		w := o.showWait("no answer")
		f(w)
		w.stop()
	})
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// A short wait prints nothing, and a long one a line for each change.
func TestProgressSpeaksOnChanges(t *testing.T) {
	ann := []api.Holder{{Session: 42, Principal: "ann", Host: "web3", PID: 7, Reason: "deploy"}}
	bob := []api.Holder{{Session: 43, Principal: "bob"}}
	lines := told(t, "text", func(w *lockWait) {
		w.queued(client.Queued{Place: 3, Waiting: 5, Holders: ann})
		time.Sleep(term.Patience - time.Millisecond)
		w.queued(client.Queued{Place: 2, Waiting: 5, Holders: ann})
		time.Sleep(time.Second)                                     // term.Patience has passed: place 2 is printed
		w.queued(client.Queued{Place: 2, Waiting: 5, Holders: ann}) // nothing new
		w.queued(client.Queued{Place: 1, Waiting: 4, Holders: bob})
		w.queued(client.Queued{Place: 1, Waiting: 4, Delayed: 9 * time.Second})
		w.queued(client.Queued{Place: 1, Waiting: 4, Delayed: 8 * time.Second}) // only time has passed
	})
	want := []string{"held by ann on web3 (pid 7, s42) for 0s (deploy), place 2 of 5", "held by bob (s43) for 0s, place 1 of 4", "another 9s, place 1 of 4"}
	if len(lines) != len(want) {
		t.Fatalf("told %q, want %q", lines, want)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], "chubbyctl: waiting for /ls/foo/a: ") || !strings.HasSuffix(lines[i], want[i]) {
			t.Errorf("told %q, want %q", lines[i], want[i])
		}
	}
}

func TestProgressOfAShortWait(t *testing.T) {
	lines := told(t, "text", func(w *lockWait) {
		w.queued(client.Queued{Place: 1, Waiting: 1})
		time.Sleep(term.Patience / 2)
	})
	if len(lines) != 1 || lines[0] != "" {
		t.Errorf("told %q", lines)
	}
}

func TestProgressAsJSON(t *testing.T) {
	lines := told(t, "json", func(w *lockWait) {
		time.Sleep(2 * term.Patience)
	})
	mustHave(t, []byte(lines[0]+"\n"), "waiting.path waiting.place waiting.waiting waiting.holders waiting.delayed_s")
}

// A client that does not get a lock is told who holds it.
func TestExplainHeld(t *testing.T) {
	o := &acquireOptions{workOptions: workOptions{path: api.MustParsePath("/ls/foo/a")}}
	held := o.explainHeld(&api.Error{Code: api.LockHeld, Holders: []api.Holder{{Session: 42, Principal: "ann", Host: "web3", PID: 7, Reason: "deploy"}}})
	delayed := o.explainHeld(&api.Error{Code: api.LockDelayed, Remaining: 4 * time.Second})
	for err, want := range map[error]string{held: "held by ann on web3 (pid 7, s42) for 0s (deploy)", delayed: "for another 4s"} {
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/ls/foo/a") {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
