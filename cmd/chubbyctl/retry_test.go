package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

func lostLock() error { return &exitError{exitLost, api.Errorf(api.LockLost, "broken by a test")} }

// repeating returns the options of a command with --retry, and what is told.
func repeating() (*workOptions, *bytes.Buffer) {
	var told bytes.Buffer
	return &workOptions{globals: &globals{output: "text"}, retry: true, err: &told}, &told
}

// With --retry CMD is run again after each loss, after pauses that grow and have a bound, and start
// again when it has run for long; its own end ends that, whatever its exit code.
func TestRetryAfterEachLoss(t *testing.T) {
	for _, own := range []int{0, 9, exitLost} {
		synctest.Test(t, func(t *testing.T) {
			o, told := repeating()
			var began []time.Time
			err := o.repeat(t.Context(), t.Context(), func(context.Context) error {
				began = append(began, time.Now())
				switch len(began) {
				case 12:
					return exitWith(own)
				case 10:
					time.Sleep(longestPause)
				}
				return lostLock()
			})
			if got := exitCode(err); got != own || wasLost(err) {
				t.Errorf("exit code %d (%v), want CMD's own %d", got, err, own)
			}
			for i, next := range began[1:] {
				pause := next.Sub(began[i])
				least, most := longestPause/2, longestPause
				switch i {
				case 0:
					least, most = firstPause/2, firstPause
				case 1:
					least, most = firstPause, 2*firstPause
				case 9: // it ran for long
					pause -= longestPause
					least, most = firstPause/2, firstPause
				case 2, 3, 4, 10:
					least = firstPause
				}
				if pause < least || pause > most {
					t.Errorf("pause %d: %v, want %v to %v", i+1, pause, least, most)
				}
			}
			if n := strings.Count(told.String(), "run again under a new session"); n != 11 {
				t.Errorf("told %d times of 11: %s", n, told)
			}
		})
	}
}

// What is no loss is not tried again: a lock that is not had at first, a signal, and without --retry
// nothing. But a cell that does not answer after a loss is tried again.
func TestWhatIsNotRetried(t *testing.T) {
	unavailable := api.Errorf(api.Unavailable, "no master")
	for what, c := range map[string]struct {
		retry bool
		ends  []error // in turn; the last one is to be returned
	}{
		"without --retry":        {false, []error{lostLock()}},
		"never held":             {true, []error{unavailable}},
		"lost in the first wait": {true, []error{api.Errorf(api.SessionExpired, "the cell has ended it"), unavailable, exitWith(3)}},
		"without, in the wait":   {false, []error{api.Errorf(api.SessionExpired, "the cell has ended it")}},
		"refused":                {true, []error{&exitError{exitHeld, errors.New("held")}}},
		"refused after a loss":   {true, []error{lostLock(), &exitError{exitWaited, errors.New("--wait ran out")}}},
		"away after a loss":      {true, []error{lostLock(), unavailable, unavailable, exitWith(3)}},
		"lost in the wait":       {true, []error{lostLock(), api.Errorf(api.SessionExpired, "away for long"), exitWith(3)}},
		"not allowed after one":  {true, []error{lostLock(), api.Errorf(api.PermissionDenied, "no")}},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, _ := repeating()
			o.retry = c.retry
			runs := 0
			err := o.repeat(t.Context(), t.Context(), func(context.Context) error { runs++; return c.ends[runs-1] })
			if runs != len(c.ends) || !errors.Is(err, c.ends[len(c.ends)-1]) {
				t.Errorf("%s: %d runs, want %d; %v", what, runs, len(c.ends), err)
			}
		})
	}
}

// --wait counts through all sessions of one wait, and anew after CMD has run.
func TestWaitCountsThroughSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := repeating()
		ends := []error{api.Errorf(api.SessionExpired, "in the wait"), lostLock(), exitWith(3)}
		var began []bool
		_ = o.repeat(t.Context(), t.Context(), func(context.Context) error {
			began = append(began, o.begun == nil)
			o.begun = stopwatch()
			return ends[len(began)-1]
		})
		if !slices.Equal(began, []bool{true, false, true}) {
			t.Errorf("waits began: %v", began)
		}
	})
}

// Who is asked to end while CMD runs is not told of another run, and has none; nor who is asked when interrupts are
// about to be caught again, after SIGHUP.
func TestWhoIsAskedToEndDoesNotRetry(t *testing.T) {
	for what, late := range map[string]bool{"while CMD ran": false, "before interrupts are caught again": true} {
		synctest.Test(t, func(t *testing.T) {
			o, told := repeating()
			ctx, interrupt := context.WithCancelCause(t.Context())
			asked, ask := context.WithCancel(t.Context())
			o.rearm = func() context.Context {
				ask()
				return t.Context()
			}
			runs := 0
			err := o.repeat(ctx, asked, func(context.Context) error {
				if runs++; !late {
					ask()
				}
				interrupt(interrupted{syscall.SIGHUP})
				return lostLock()
			})
			if runs != 1 || !wasLost(err) || late == (told.Len() == 0) {
				t.Errorf("%s: %d runs, %v, told %q", what, runs, err, told)
			}
		})
	}
}

// A signal in a pause ends it, with its own exit code. SIGHUP while CMD ran was for CMD, and ends nothing.
func TestSignalsAndRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := repeating()
		ctx, interrupt := context.WithCancelCause(t.Context())
		err := o.repeat(ctx, t.Context(), func(context.Context) error {
			time.AfterFunc(firstPause/4, func() { interrupt(interrupted{syscall.SIGTERM}) })
			return lostLock()
		})
		if exitCode(err) != 143 {
			t.Errorf("a signal in the pause: exit code %d (%v)", exitCode(err), err)
		}
	})
	for _, caught := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			o, _ := repeating()
			ctx, interrupt := context.WithCancelCause(t.Context())
			if caught {
				o.rearm = t.Context
			}
			runs := 0
			err := o.repeat(ctx, t.Context(), func(ctx context.Context) error {
				if runs++; runs == 2 {
					return context.Cause(ctx)
				}
				interrupt(interrupted{syscall.SIGHUP})
				return lostLock()
			})
			if caught != (err == nil && runs == 2) {
				t.Errorf("SIGHUP, caught %t: %d runs, %v", caught, runs, err)
			}
		})
	}
}

// Several locks are as safe as the one that is lost first.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		c := cell.Client("web1")
		all, err := recipe.AcquireAll(t.Context(), c, []string{"/ls/local/b", "/ls/local/a"}, recipe.AllOptions{LockDelay: api.DefaultLockDelay})
		if err != nil {
			t.Fatal(err)
		}
		h := holdingAll(all)
		if left := h.lock.ExclusiveUntil(); left < api.DefaultLockDelay || h.lock.Err() != nil {
			t.Errorf("exclusive for %v, %v", left, h.lock.Err())
		}
		if got := h.String(); got != "one of /ls/local/a, /ls/local/b" {
			t.Errorf("%q", got)
		}
		env := strings.Join(h.environment(c.Session()), "\x00")
		if !strings.Contains(env, "CHUBBY_LOCK=/ls/local/a\n/ls/local/b\x00") {
			t.Errorf("CMD is told %q", env)
		}
		if err := c.BreakLock(t.Context(), "/ls/local/b", "a test", false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if left := h.lock.ExclusiveUntil(); left != 0 || h.lock.Err() == nil {
			t.Errorf("one was lost: exclusive for %v, %v", left, h.lock.Err())
		}
		_ = h.giveUp(t.Context()) // one was lost
	})
}

// A pause leaves time to ask once more, and is never longer than what is left.
func TestPauseWithinWait(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		10 * time.Second: 8 * time.Second, 2100 * time.Millisecond: 250 * time.Millisecond, 250 * time.Millisecond: 250 * time.Millisecond,
		249 * time.Millisecond: 249 * time.Millisecond, time.Nanosecond: time.Nanosecond,
	} {
		if got := pauseWithin(left); got != want {
			t.Errorf("with %v left it pauses for %v, want %v", left, got, want)
		}
	}
}

// --wait ends a wait with --retry in a cell that is away for longer than any session survives, whatever --timeout is.
func TestWaitEndsWhileTheCellIsAway(t *testing.T) {
	for _, wait := range []time.Duration{3 * time.Minute, 10 * time.Minute} {
		withFollowed(t, func(s *followed) {
			s.put("/ls/local/a", "")
			h, err := s.author.Open(s.Context(), "/ls/local/a", client.OpenOptions{Write: true})
			s.ok(err)
			lock, err := h.Acquire(s.Context(), api.Exclusive)
			s.ok(err)
			o := &acquireOptions{workOptions: workOptions{
				globals: s.g, err: io.Discard, verb: "acquire", retry: true, waitLimit: waitLimit{wait: wait, waits: true}, lease: api.DefaultLease,
				paths: []api.Path{api.MustParsePath("/ls/local/a")}, path: api.MustParsePath("/ls/local/a"),
			}}
			began := time.Now()
			ended := make(chan error, 1)
			ctx, interrupt := context.WithCancel(s.Context())
			go func() { ended <- o.runWork(ctx, o.acquire) }()
			s.pass(time.Second)
			s.cell.Cut("reader")
			time.AfterFunc(time.Hour, interrupt)
			err = <-ended
			if took := time.Since(began); exitCode(err) != exitWaited || took != wait {
				t.Errorf("--wait %v ended after %v with %v (exit code %d)", wait, took, err, exitCode(err))
			}
			s.ok(lock.Release(s.Context()))
		})
	}
}
