package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A master whose machine stops closes no connection: another is looked for as soon
// as a call waits, and found when there is one. Nobody has to wait for CallTimeout.
func TestMasterStops(t *testing.T) {
	call := map[string]func(context.Context, *Handle) error{
		"Stat":    func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"Acquire": func(ctx context.Context, h *Handle) error { _, err := h.Acquire(ctx, api.Exclusive); return err },
	}
	for name, elected := range map[string]time.Duration{"Stat": lateAfter / 2, "Acquire": 2 * lateAfter} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				var stopped atomic.Bool
				f.script(func(s seen) verb {
					if s.address == "a:1" && (stopped.Load() || s.method == "KeepAlive") {
						return hang
					}
					return nil
				})
				c := f.client(f.config())
				h := lockable(t, c, 0)
				stopped.Store(true)
				time.AfterFunc(elected, func() { f.elect("b:1") })
				began := time.Now()
				if err := call[name](t.Context(), h); err != nil {
					t.Error(err)
				}
				if d, most := time.Since(began), max(elected, lateAfter)+time.Second; d > most {
					t.Errorf("it took %v, want %v at most", d, most)
				}
				closeClient(t, c)
			})
		})
	}
}

// One that is only slow stays the master, and the call goes on: it is not sent
// again, and the replicas are asked once.
func TestMasterIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.script(func(s seen) verb {
			if s.method == "GetStat" {
				return after(4 * lateAfter)
			}
			return nil
		})
		before := len(f.heard("Locate"))
		if _, err := h.Stat(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(f.heard("GetStat")); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		if n := len(f.heard("Locate")) - before; n != len(addresses()) {
			t.Errorf("%d times a replica was asked for the master", n)
		}
		closeClient(t, c)
	})
}

// When another master is found, whoever still waits for the one before asks the
// new one at once, and not when its own patience is over.
func TestSuperseded(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.script(func(s seen) verb {
			if s.method == "GetStat" && s.nth == 1 {
				return hang
			}
			return nil
		})
		began := time.Now()
		first := make(chan error)
		go func() { _, err := h.Stat(t.Context()); first <- err }()
		time.Sleep(time.Second)
		f.elect("b:1")
		if _, err := h.Stat(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-first; err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		closeClient(t, c)
	})
}

// A call that is under way ends with its session, and not when the master answers, or
// CallTimeout has passed.
func TestCallsEndWithTheirSession(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Handle) error{
		"GetStat": func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"Acquire": func(ctx context.Context, h *Handle) error { _, err := h.Acquire(ctx, api.Exclusive); return err },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := lockable(t, c, 0)
				f.script(func(s seen) verb {
					if s.method == name {
						return hang
					}
					return nil
				})
				ended := make(chan error)
				go func() { ended <- call(t.Context(), h) }()
				time.Sleep(lateAfter / 10)
				began := time.Now()
				c.session.endSession(EndedByCell, "it was ended")
				if err := <-ended; !errors.Is(err, api.SessionExpired) || time.Since(began) > 0 {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				closeClient(t, c)
			})
		})
	}
}
