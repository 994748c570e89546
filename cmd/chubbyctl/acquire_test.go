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
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
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

// Chubby §4.3: a file has at most 256 kilobytes; a larger value is not sent.
func TestPutRefusesLargeValues(t *testing.T) {
	for size, want := range map[int]int{api.MaxContents: exitUnavailable, api.MaxContents + 1: exitFailed} {
		_, err := execute(t, strings.NewReader(strings.Repeat("x", size)), "put", "/ls/local/a", "-")
		if exitCode(err) != want || (want == exitFailed) != errors.Is(err, api.TooLarge) {
			t.Errorf("put of %d bytes: exit code %d (%v), want %d", size, exitCode(err), err, want)
		}
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
		w.progress.Stop()
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

// Whoever does not get several locks is told which of them another has, whatever the order in which they
// were given, and holds none of them.
func TestSeveralLocksThatAreNotHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		one, two := cell.Client("one"), cell.Client("two")
		if _, err := recipe.AcquireAll(t.Context(), one, []string{"/ls/local/zoe"}, recipe.AllOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			try  bool
			wait time.Duration
			code int
			text string
		}{
			{try: true, code: exitHeld, text: "acquire /ls/local/zoe: held by"},
			{wait: 0, code: exitWaited, text: "acquire /ls/local/zoe: --wait 0s ran out; held by"},
			{wait: 5 * time.Second, code: exitWaited, text: "acquire /ls/local/zoe: --wait 5s ran out; held by"},
		} {
			var told buffer
			o := &acquireOptions{workOptions: workOptions{
				globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told, verb: "acquire",
				paths: []api.Path{api.MustParsePath("/ls/local/ann"), api.MustParsePath("/ls/local/zoe")}, path: api.MustParsePath("/ls/local/ann"),
				try: c.try, waitLimit: waitLimit{c.wait, !c.try, stopwatch()},
			}}
			held, err := o.acquireAll(t.Context(), t.Context(), two)
			if held != nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v, exit code %d (%v)", c, held, exitCode(err), err)
			}
			if waited := c.wait > 0; waited != strings.Contains(told.String(), "waiting for /ls/local/zoe: held by") {
				t.Errorf("%+v: told %q", c, told.String())
			}
			if locks, err := one.Cell().LocksOf(t.Context(), two.Session()); err != nil || len(locks) != 0 {
				t.Errorf("%+v: it holds %v, %v", c, locks, err)
			}
		}
	})
}

// --busy-exit-code and --quiet are for a lock that others have: not for CMD's own exit code, a lock that was lost, or a cell
// that does not answer.
func TestBusyIsNoFailure(t *testing.T) {
	held := errors.New("held by ann")
	o := workOptions{globals: &globals{quiet: true}, busy: busyCode{9, true}}
	for _, c := range []struct {
		err  error
		code int
		said bool
	}{
		{&exitError{exitHeld, held}, 9, false},
		{&exitError{exitWaited, held}, 9, false},
		{&exitError{code: exitHeld}, exitHeld, false},
		{&exitError{exitLost, held}, exitLost, true},
		{&exitError{exitWaited, unanswered{held}}, exitWaited, true},
		{held, exitFailed, true},
	} {
		err := o.withBusyCode(c.err)
		var said bytes.Buffer
		o.printError(&said, err)
		if exitCode(err) != c.code || said.Len() > 0 != c.said {
			t.Errorf("%+v: exit %d, and says %q; want %d", c.err, exitCode(err), &said, c.code)
		}
	}
	o.quiet, o.busy.given = false, false
	if err := o.withBusyCode(&exitError{exitHeld, held}); exitCode(err) != exitHeld || !errors.Is(err, held) {
		t.Errorf("without the flags: %v, exit %d", err, exitCode(err))
	}
}
