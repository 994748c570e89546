package sequencer_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// running is a request inside a Do that stays until the test ends it.
type running struct {
	entered chan context.Context // gets serve's context, once, if serve is called
	end     chan struct{}
	result  chan error
}

func begin(ctx context.Context, guard *sequencer.Guard, token uint64) *running {
	r := &running{entered: make(chan context.Context, 1), end: make(chan struct{}), result: make(chan error, 1)}
	go func() {
		r.result <- guard.Do(ctx, of(primary, token).String(), func(ctx context.Context) error {
			r.entered <- ctx
			<-r.end
			return nil
		})
	}()
	return r
}

func (r *running) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(r.entered) != 0 || len(r.result) != 0 {
		t.Fatal("it does not wait")
	}
}

func (r *running) isInside(t *testing.T) context.Context {
	t.Helper()
	synctest.Wait()
	select {
	case ctx := <-r.entered:
		return ctx
	default:
		t.Fatal("it was not let in")
		return nil
	}
}

func (r *running) isRefused(t *testing.T, code api.Code) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-r.result:
		if !errors.Is(err, code) || len(r.entered) != 0 {
			t.Fatalf("it ended with %v; want %v without being let in", err, code)
		}
	default:
		t.Fatalf("it was not refused; want %v", code)
	}
}

// The steps of a hand-over: a newer token stops older requests from entering,
// cancels those inside, waits for them, and enters.
func TestNewerTokenWaitsForOlderRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		first, second := begin(t.Context(), guard, 41), begin(t.Context(), guard, 41)
		ctx := first.isInside(t)
		second.isInside(t) // requests of one token run concurrently
		if s, ok := sequencer.FromContext(ctx); !ok || s != of(primary, 41) {
			t.Fatalf("FromContext = %+v, %v", s, ok)
		}

		third := begin(t.Context(), guard, 57)
		third.waits(t)
		if cause := context.Cause(ctx); !errors.Is(cause, api.BadSequencer) || !strings.Contains(cause.Error(), "57 was seen") {
			t.Fatalf("the older request's context ended with %v", cause)
		}
		begin(t.Context(), guard, 41).isRefused(t, api.BadSequencer)

		// A waiting request whose token is overtaken is refused at once.
		fourth := begin(t.Context(), guard, 60)
		fourth.waits(t)
		third.isRefused(t, api.BadSequencer)

		close(first.end)
		fourth.waits(t) // for the request inside
		close(second.end)
		if ctx := fourth.isInside(t); ctx.Err() != nil {
			t.Fatalf("the newest request is let in with a context that has ended: %v", context.Cause(ctx))
		}
		close(fourth.end)
		synctest.Wait()
		for _, r := range []*running{first, second, fourth} {
			if err := <-r.result; err != nil {
				t.Error(err)
			}
		}
		if got, want := guard.Stats(), (sequencer.Stats{Accepted: 3, RefusedStale: 2}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
	})
}

// The wait ends with the caller's context, and older requests stay out even
// though the newer one never came in.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		deaf := begin(t.Context(), guard, 41)
		deaf.isInside(t)

		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		late := begin(short, guard, 57)
		late.waits(t)
		<-short.Done()
		late.isRefused(t, api.DeadlineExceeded)

		cancelled, cancel := context.WithCancel(t.Context())
		gone := begin(cancelled, guard, 57)
		gone.waits(t)
		cancel()
		gone.isRefused(t, api.Cancelled)

		begin(t.Context(), guard, 41).isRefused(t, api.BadSequencer)
		close(deaf.end)
		next := begin(t.Context(), guard, 57)
		next.isInside(t)
		close(next.end)
		synctest.Wait()
	})
}

func TestSectionEndsHoweverServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		text := of(primary, 41).String()
		mine := errors.New("mine")
		if err := guard.Do(t.Context(), text, func(context.Context) error { return mine }); !errors.Is(err, mine) {
			t.Errorf("Do returns %v, not serve's own error", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = guard.Do(t.Context(), text, func(context.Context) error { panic("handler") })
		}()
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = guard.Do(t.Context(), text, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-exited
		next := begin(t.Context(), guard, 57)
		next.isInside(t)
		close(next.end)
		synctest.Wait()
	})
}

// A request of one lock never waits for requests of another.
func TestLocksDoNotWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo")})
		deaf := begin(t.Context(), guard, 41)
		deaf.isInside(t)
		served := false
		err := guard.Do(t.Context(), of(api.MustParsePath("/ls/foo/other"), 57).String(), func(context.Context) error {
			served = true
			return nil
		})
		if err != nil || !served {
			t.Errorf("served %v, %v", served, err)
		}
		close(deaf.end)
		synctest.Wait()
	})
}

// Once a section of a newer token has begun, no section of an older one runs or
// begins.
func TestSectionsOfTwoTokensNeverOverlap(t *testing.T) {
	const callers, requests = 8, 300
	guard := newGuard(t, sequencer.GuardConfig{})
	var tokens, begun atomic.Uint64
	var group sync.WaitGroup
	tokens.Store(100)
	for range callers {
		group.Go(func() {
			for i := range requests {
				token := tokens.Load() - uint64(i%3)
				if i%4 == 0 {
					token = tokens.Add(1)
				}
				err := guard.Do(t.Context(), of(primary, token).String(), func(context.Context) error {
					for before := begun.Load(); before < token && !begun.CompareAndSwap(before, token); {
						before = begun.Load()
					}
					for range 40 * (i % 5) {
						runtime.Gosched()
						if newest := begun.Load(); newest != token {
							t.Errorf("a section of token %d runs, and one of %d has begun", token, newest)
						}
					}
					return nil
				})
				if err != nil && !errors.Is(err, api.BadSequencer) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if stats := guard.Stats(); stats.Accepted < 10 || stats.RefusedStale < 10 || stats.RefusedOther != 0 {
		t.Errorf("%+v: the test proves nothing", stats)
	}
}
