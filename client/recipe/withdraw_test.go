//go:build linux

package recipe

import (
	"context"
	"errors"
	"net/url"
	"os"
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
				ctx, cancel := context.WithCancel(w.Ctx)
				w.T.Cleanup(cancel)
				cacher := w.Client("cacher")
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					for range WatchMembers(ctx, cacher, candidatesOf(office)) {
						continue // it is there for its cache
					}
				}()
				w.T.Cleanup(func() { cancel(); <-watched })
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
				w.OK(p.Resign(w.Ctx))
				pass(5 * time.Second)
				p = w.primary(low)
				if list, err := Candidates(w.Ctx, low.Client, office); err != nil || summary(list) != "low!" {
					t.Errorf("%s %v", summary(list), err)
				}
				again := w.campaignOf(high.Client, "high", CampaignOptions{LockDelay: NoLockDelay})
				pass(time.Second)
				w.OK(p.Resign(w.Ctx))
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
		over, cancel := context.WithCancel(w.Ctx)
		cancel()
		if err := p.Resign(over); err != nil || p.Context().Err() == nil {
			t.Errorf("resigned: %v, %v", err, p.Context().Err())
		}
		if list, err := Members(w.Ctx, first.Client, candidatesOf(office)); err != nil || len(list) != 0 {
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
		a, b := w.Client("a"), w.Client("b")
		expect := func(what string, want int) {
			t.Helper()
			if list, err := Members(w.Ctx, b, up); err != nil || len(list) != want {
				t.Errorf("%s: %d members, %v", what, len(list), err)
			}
		}
		p, err := Announce(w.Ctx, a, up, "a", nil)
		w.OK(err)
		w.Cut("a")
		ctx, cancel := w.Brief(2 * time.Second)
		// Uncertain if the request was on its way when the cable was cut.
		if err := p.Withdraw(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("withdrawn in silence: %v", err)
		}
		cancel()
		w.Heal("a")
		pass(5 * time.Second)
		expect("withdrawn in silence", 0)
		w.OK(p.Withdraw(w.Ctx))

		p, err = Announce(w.Ctx, a, up, "a", nil)
		w.OK(err)
		held, err := take(w.Ctx, b, up+"/a", client.OpenOptions{Write: true}, api.Exclusive, true)
		w.OK(err)
		if err := p.Withdraw(w.Ctx); !errors.Is(err, api.LockHeld) {
			t.Errorf("withdrawn, and the file is locked: %v", err)
		}
		expect("a locked file", 1)
		w.OK(held.Release(w.Ctx))
		pass(time.Second)
		expect("it is released", 0)
	})
}

// A server that is started again right after a crash has its own name once the lease of
// the crashed one has ended; that of another it is refused at once, unless it says that
// its names are nobody else's.
func TestNameAfterACrash(t *testing.T) {
	t.Parallel()
	const dead = 1 << 30 // more than a system gives out
	const address = "127.0.0.1:9999"
	announceAs := func(options ...AnnounceOption) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := Announce(ctx, c, up, url.PathEscape(address), nil, options...)
			return err
		}
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		host  string // of the crashed one
		pid   int
		again func(ctx context.Context, c *client.Client) error
		had   bool
	}{
		"a process that is dead":            {here, dead, announceAs(), true},
		"a process that runs":               {here, os.Getppid(), announceAs(), false},
		"on another host":                   {"elsewhere", dead, announceAs(), false},
		"on another host, and it is waited": {"elsewhere", dead, announceAs(WaitForName()), true},
		"an address": {"elsewhere", dead, func(ctx context.Context, c *client.Client) error {
			_, err := Publish(ctx, c, up, Endpoint{Address: address})
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSmallWorld(t, func(w *world) {
				crashed := w.Client("crashed")
				r := sign(crashed)
				r.Host, r.PID = test.host, test.pid
				_, err := announce(w.Ctx, crashed, up, url.PathEscape(address), r, announceOptions{})
				w.OK(err)
				w.Cut("crashed")
				began := time.Now()
				err = test.again(w.Ctx, w.Client("again"))
				waited := time.Since(began)
				switch {
				case test.had && (err != nil || waited < api.DefaultLease/2 || waited > 2*api.DefaultLease):
					t.Errorf("%v after %v", err, waited)
				case !test.had && (!errors.Is(err, api.Exists) || waited > time.Second):
					t.Errorf("%v after %v", err, waited)
				}
			})
		})
	}
}

// So has a candidate, if it says so.
func TestCandidateAfterACrash(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		crashed, again := w.Client("crashed"), w.Client("again")
		r := sign(crashed)
		r.Host = "elsewhere"
		w.Mkdir(crashed, candidatesOf(office))
		_, err := announce(w.Ctx, crashed, candidatesOf(office), "name", r, announceOptions{})
		w.OK(err)
		w.Cut("crashed")
		if _, err := Campaign(w.Ctx, again, office, CampaignOptions{LockDelay: NoLockDelay, Name: "name"}); !errors.Is(err, api.Exists) {
			t.Errorf("without the option: %v", err)
		}
		p, err := Campaign(w.Ctx, again, office, CampaignOptions{LockDelay: NoLockDelay, Name: "name", WaitForName: true})
		w.OK(err)
		w.OK(p.Resign(w.Ctx))
	})
}
