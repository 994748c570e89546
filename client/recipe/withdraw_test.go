//go:build linux

package recipe

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
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
			inSmallWorld(t, func(w *world) {
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
		p := ok(Announce(w.Ctx, a, up, "a", nil))(w)
		w.Cut("a")
		ctx := w.brief(2 * time.Second)
		// Uncertain if the request was on its way when the cable was cut.
		wants(t, "withdrawn in silence", p.Withdraw(ctx), context.DeadlineExceeded)
		w.Heal("a")
		pass(5 * time.Second)
		expect("withdrawn in silence", 0)
		w.OK(p.Withdraw(w.Ctx))

		p = ok(Announce(w.Ctx, a, up, "a", nil))(w)
		held := ok(hold.Take(w.Ctx, b, up+"/a", client.OpenOptions{Write: true}, api.Exclusive, true))(w)
		wants(t, "withdrawn, and the file is locked", p.Withdraw(w.Ctx), api.LockHeld)
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
				ok(announce(w.Ctx, crashed, up, url.PathEscape(address), r, announceOptions{}))(w)
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
		ok(announce(w.Ctx, crashed, candidatesOf(office), "name", r, announceOptions{}))(w)
		w.Cut("crashed")
		wants(t, "without the option", second(Campaign(w.Ctx, again, office, CampaignOptions{LockDelay: NoLockDelay, Name: "name"})), api.Exists)
		p := ok(Campaign(w.Ctx, again, office, CampaignOptions{LockDelay: NoLockDelay, Name: "name", WaitForName: true}))(w)
		w.OK(p.Resign(w.Ctx))
	})
}

// A lock that an operator takes away in the moment in which it is granted is waited for again: the candidate
// remains one, and whoever wants a slot, or its turn, gets it.
func TestTakenInTheMomentOfTheGrant(t *testing.T) {
	t.Parallel()
	campaign := func(ctx context.Context, c *client.Client) error {
		p, err := Campaign(ctx, c, office, CampaignOptions{LockDelay: NoLockDelay})
		if err != nil {
			return err
		}
		return p.Resign(ctx)
	}
	acquire := func(ctx context.Context, c *client.Client) error {
		p, err := NewSemaphore(c, semDir, 1).Acquire(ctx, SemaphoreOptions{LockDelay: NoLockDelay})
		if err != nil {
			return err
		}
		return p.Release(ctx)
	}
	for lock, one := range map[string]struct {
		method string
		act    func(context.Context, *client.Client) error
	}{
		office:                            {"Acquire", campaign},
		semDir + "/" + hold.TurnstileName: {"Acquire", acquire},
		semDir + "/" + slotName(0):        {"TryAcquire", acquire},
	} {
		recipetest.IsRobbed(t, lock, one.method, nil, one.act)
	}
}

// So it is with a slot that was waited for among others.
func TestTakenFromWhoWaitsForAll(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			operator, d := w.Client("operator"), w.Deafen("deaf", "Acquire")
			d.Hear(true)
			s := NewSemaphore(operator, semDir, 2)
			var held []*Permit
			for range 2 {
				p := ok(s.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
				held = append(held, p)
			}
			done := make(chan error, 1)
			go func() {
				ctx := w.brief(time.Minute)
				p, err := NewSemaphore(d.Client, semDir, 2).Acquire(ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				if err == nil {
					err = p.Release(ctx)
				}
				done <- err
			}()
			pass(time.Second)
			d.Hear(false)
			w.OK(held[0].Release(w.Ctx))
			w.Rob(operator, d, semDir+"/slot-", now)
			w.OK(<-done)
			w.OK(held[1].Release(w.Ctx))
			w.Lives(d.Client)
		})
	}
}

// Whoever waits for a slot is not put off by another whose file is deleted, and has that one's successor when
// its lock-delay is over.
func TestSlotIsDeleted(t *testing.T) {
	t.Parallel()
	for _, freed := range []bool{true, false} {
		inSmallWorld(t, func(w *world) {
			const delay = 30 * time.Second
			o := SemaphoreOptions{LockDelay: delay}
			one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
			lost := ok(NewSemaphore(one, semDir, 2).Acquire(w.Ctx, o))(w)
			other := ok(NewSemaphore(operator, semDir, 2).Acquire(w.Ctx, o))(w)
			w.Expire(one.Session())
			type result struct {
				p   *Permit
				err error
			}
			got := make(chan result, 1)
			go func() {
				p, err := NewSemaphore(two, semDir, 2).Acquire(w.Ctx, o)
				got <- result{p, err}
			}()
			pass(5 * time.Second)
			w.Rm(operator, semDir+"/"+slotName(lost.Slot()))
			pass(time.Second)
			want := lost.Slot()
			if freed {
				want = other.Slot()
				w.OK(other.Release(w.Ctx))
			}
			select {
			case r := <-got:
				w.OK(r.err)
				if r.p.Slot() != want {
					t.Errorf("slot %d, want %d", r.p.Slot(), want)
				}
			case <-time.After(delay):
				t.Error("it waits for a slot that is free")
			}
		})
	}
}

// A slot whose file is deleted when it has just been opened is free all the same: nobody waits for another, or
// is refused.
func TestSlotIsDeletedWhenItIsTried(t *testing.T) {
	t.Parallel()
	const way = 100 * time.Millisecond
	for _, n := range []int{1, 2} {
		for name, acquire := range map[string]func(*Semaphore, context.Context, SemaphoreOptions) (*Permit, error){
			"Acquire": (*Semaphore).Acquire, "TryAcquire": (*Semaphore).TryAcquire,
		} {
			inSmallWorld(t, func(w *world) {
				operator := w.Client("operator")
				w.Slow("far", way)
				far := w.Client("far", func(cfg *client.Config) { cfg.NoCache = true }) // so that nobody waits for it
				s := NewSemaphore(operator, semDir, n)
				free := ok(s.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
				for range n - 1 {
					ok(s.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
				}
				w.OK(free.Release(w.Ctx))
				slot := slotName(free.Slot())
				w.Rm(operator, semDir+"/"+slot)
				got := make(chan error, 1)
				go func() {
					ctx := w.brief(time.Minute)
					p, err := acquire(NewSemaphore(far, semDir, n), ctx, SemaphoreOptions{LockDelay: NoLockDelay})
					if err == nil {
						err = p.Release(ctx)
					}
					got <- err
				}()
				dir := w.Read(operator, semDir)
				isThere := func(one api.Stat) bool { return one.Path.Base() == slot }
				for there := false; !there; pass(way / 10) {
					list := ok(dir.ReadDir(w.Ctx))(w)
					there = slices.ContainsFunc(list, isThere)
				}
				w.Rm(operator, semDir+"/"+slot) // far has not heard yet that it is open
				if err := <-got; err != nil {
					t.Errorf("%s of %d: %v", name, n, err)
				}
			})
		}
	}
}

// When the file of one of several locks is deleted while it is waited for, the error says that, and not that
// another was released.
func TestOneOfSeveralIsDeleted(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		h := ok(one.Open(w.Ctx, "/ls/local/z", client.OpenOptions{Write: true, Create: client.File}))(w)
		ok(h.Acquire(w.Ctx, api.Exclusive))(w)
		failed := make(chan error, 1)
		go func() {
			_, err := AcquireAll(w.Ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: NoLockDelay})
			failed <- err
		}()
		pass(time.Second)
		w.OK(h.Delete(w.Ctx))
		if err := <-failed; !errors.Is(err, api.HandleClosed) || errors.Is(err, client.LockReleased) {
			t.Errorf("%v", err)
		}
		locks, err := one.Cell().LocksOf(w.Ctx, two.Session())
		if err != nil || len(locks) != 0 {
			t.Errorf("%v, %v", locks, err)
		}
	})
}
