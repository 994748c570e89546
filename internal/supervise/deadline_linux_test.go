package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stubborn ignores the signals that ask it to end. It has a child that has left its process group and
// its session, and ignores them too.
const stubborn = `exec 5>"$1"; trap '' TERM INT HUP
	setsid sh -c 'trap "" TERM; echo escaped >&5; while :; do sleep 0.01; done' &
	while :; do sleep 0.01; done`

func TestEverythingIsGoneAtTheDeadline(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	limit := 1500 * time.Millisecond
	c.KillAfter = 500 * time.Millisecond
	var ours allowance
	c.Allowed = ours.left
	p := start(t, c)
	f.line(t)
	began := now()
	ours.endsIn(limit)
	got := wait(t, p)
	took := time.Duration(now() - began)
	f.ended(t)
	if got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGKILL", got)
	}
	if took < limit-c.KillAfter || took > limit+bound/2 {
		t.Errorf("gone after %v, want about %v", took, limit)
	}
}

// A command that ends when it is asked is not killed.
func TestDeadlineAsksFirst(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; trap 'echo asked >&5; exit 6' TERM; echo ready >&5; while :; do sleep 0.01; done`, f.name)
	c.KillAfter = bound
	var ours allowance
	c.Allowed = ours.left
	p := start(t, c)
	f.line(t)
	ours.endsIn(bound)
	if got := f.line(t); got != "asked" {
		t.Error(got)
	}
	if got := wait(t, p); got != (Result{Code: 6, Cut: true}) {
		t.Errorf("result %+v, want 6, cut", got)
	}
}

// A command does not notice a deadline that is put off in time.
func TestDeadlineIsPutOff(t *testing.T) {
	c := shell("sleep 5.5")
	c.KillAfter = 100 * time.Millisecond
	c.Allowed = always(5 * time.Second)
	if got := wait(t, start(t, c)); got != (Result{}) {
		t.Errorf("result %+v, want an undisturbed end", got)
	}
}

// Without news the guardian keeps to the instants that it knows.
func TestNoNewsDoesNotPutOff(t *testing.T) {
	const enough, last, silent = 0, 1, 2
	var news atomic.Int32
	c := shell("sleep 1000")
	c.KillAfter = bound / 2 // a busy machine may take a while to end it by the first signal
	c.Allowed = func() (time.Duration, bool) {
		if news.Load() == enough {
			return plenty, true
		}
		return c.KillAfter + 300*time.Millisecond, news.CompareAndSwap(last, silent)
	}
	p := start(t, c)
	news.Store(last)
	if got := wait(t, p); got != (Result{Code: 143, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGTERM", got)
	}
}

func TestStopKillsAfterTheUsualTime(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter = 200 * time.Millisecond
	p := start(t, c)
	f.line(t)
	p.Stop()
	if got := wait(t, p); got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGKILL", got)
	}
	f.ended(t)
}

// A deadline that comes closer counts also after the command was asked to end.
func TestDeadlineCountsWhileStopping(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter = plenty / 2
	var closer atomic.Bool
	soon := always(200 * time.Millisecond)
	c.Allowed = func() (time.Duration, bool) {
		if closer.Load() {
			return soon()
		}
		return plenty, true
	}
	p := start(t, c)
	f.line(t)
	p.Stop()
	closer.Store(true)
	if got := wait(t, p); got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want killed at the deadline", got)
	}
}

// If there is no time left, nothing is started.
func TestLateStart(t *testing.T) {
	for name, allowed := range map[string]func() (time.Duration, bool){
		"no news":        func() (time.Duration, bool) { return plenty, false },
		"over":           func() (time.Duration, bool) { return -time.Second, true },
		"less than half": func() (time.Duration, bool) { return 500 * time.Millisecond, true }, // KillAfter is a second
	} {
		mark := filepath.Join(t.TempDir(), "started")
		c := shell(`: >"$1"`, mark)
		c.Allowed = allowed
		signals := make(chan os.Signal, 1)
		signals <- unix.SIGTERM
		if _, err := Start(c, signals); !errors.Is(err, ErrLate) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("%s: the command was started", name)
		}
	}
}
