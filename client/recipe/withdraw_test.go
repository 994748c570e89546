//go:build linux

package recipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A candidate that gave up while it could not say so is none any more when it can: others are elected, and
// the name is free. So it is if its file is only deleted once somebody's cache is known to be empty.
func TestCampaignGivenUpInSilence(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]struct {
		begin, end func(w *world)
	}{
		"cut off": {
			func(w *world) { w.Cut("high") },
			func(w *world) { pass(time.Second); w.Heal("high") },
		},
		"a cache is cut off": {
			func(w *world) {
				ctx, cancel := context.WithCancel(w.ctx)
				w.t.Cleanup(cancel)
				cacher := w.dial("cacher")
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					for range WatchMembers(ctx, cacher, candidatesOf(office)) {
						continue // it is there for its cache
					}
				}()
				w.t.Cleanup(func() { cancel(); <-watched })
				pass(time.Second)
				w.Cut("cacher")
				pass(time.Second)
			},
			func(*world) { pass(time.Minute) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
				high, low := w.campaign("high", CampaignOptions{LockDelay: NoLockDelay, Priority: 10}), w.campaign("low", CampaignOptions{LockDelay: NoLockDelay})
				pass(time.Second)
				trouble.begin(w)
				high.stop()
				<-high.won // it takes some seconds
				trouble.end(w)
				pass(time.Second)
				w.ok(p.Resign(w.ctx))
				pass(5 * time.Second)
				p = w.primary(low)
				if list, err := Candidates(w.ctx, low.Client, office); err != nil || summary(list) != "low!" {
					t.Errorf("%s %v", summary(list), err)
				}
				again := w.campaignOf(high.Client, "high", CampaignOptions{LockDelay: NoLockDelay})
				pass(time.Second)
				w.ok(p.Resign(w.ctx))
				w.primary(again)
			})
		})
	}
}

// A primary whose context has ended before it resigns has resigned all the same, and is
// no candidate any more.
func TestResignLate(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		first := w.campaign("first", CampaignOptions{LockDelay: NoLockDelay})
		p := w.primary(first)
		over, cancel := context.WithCancel(w.ctx)
		cancel()
		if err := p.Resign(over); err != nil || p.Context().Err() == nil {
			t.Errorf("resigned: %v, %v", err, p.Context().Err())
		}
		if list, err := Members(w.ctx, first.Client, candidatesOf(office)); err != nil || len(list) != 0 {
			t.Errorf("%v %v", list, err)
		}
		w.primary(w.campaignOf(first.Client, "first", CampaignOptions{LockDelay: NoLockDelay}))
	})
}

// Who gives up to wait for it has withdrawn all the same; and a file whose lock another holds goes with his
// handle.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		a, b := w.dial("a"), w.dial("b")
		expect := func(what string, want int) {
			t.Helper()
			if list, err := Members(w.ctx, b, up); err != nil || len(list) != want {
				t.Errorf("%s: %d members, %v", what, len(list), err)
			}
		}
		p, err := Announce(w.ctx, a, up, "a", nil)
		w.ok(err)
		w.Cut("a")
		ctx, cancel := w.brief(2 * time.Second)
		// Uncertain if the request was on its way when the cable was cut.
		if err := p.Withdraw(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("withdrawn in silence: %v", err)
		}
		cancel()
		w.Heal("a")
		pass(5 * time.Second)
		expect("withdrawn in silence", 0)
		w.ok(p.Withdraw(w.ctx))

		p, err = Announce(w.ctx, a, up, "a", nil)
		w.ok(err)
		held, err := take(w.ctx, b, up+"/a", client.OpenOptions{Write: true}, api.Exclusive, true)
		w.ok(err)
		if err := p.Withdraw(w.ctx); !errors.Is(err, api.LockHeld) {
			t.Errorf("withdrawn, and the file is locked: %v", err)
		}
		expect("a locked file", 1)
		w.ok(held.release(w.ctx))
		pass(time.Second)
		expect("it is released", 0)
	})
}
