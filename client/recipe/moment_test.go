//go:build linux

package recipe

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// deaf is a client that does not hear that it has a lock, until it is told to listen.
type deaf struct {
	*client.Client
	listens *atomic.Bool
}

// deaf opens a session that does not hear answers to one method, or to both that ask for locks.
func (w *world) deaf(host string, methods ...string) deaf {
	w.t.Helper()
	d := deaf{listens: &atomic.Bool{}}
	cfg := w.config(host)
	cfg.Dialer = w.Lossy(host, func(method string) bool {
		return !d.listens.Load() && slices.Contains(methods, path.Base(method))
	})
	var err error
	d.Client, err = client.New(w.ctx, cfg)
	w.ok(err)
	w.t.Cleanup(func() { end(d.Client) })
	return d
}

// robbed waits until the client has that lock, of which it has not heard, takes it away, and lets it hear.
func (w *world) robbed(operator *client.Client, d deaf, lock string, now bool) {
	w.t.Helper()
	for range 1000 {
		locks, err := operator.Cell().Locks(w.ctx, "")
		w.ok(err)
		at := slices.IndexFunc(locks, func(l client.LockInfo) bool { return holds(l, d.Session()) && strings.HasPrefix(l.Path, lock) })
		if at >= 0 {
			w.ok(operator.BreakLock(w.ctx, locks[at].Path, "a test", now))
			pass(time.Second)
			d.listens.Store(true)
			return
		}
		pass(10 * time.Millisecond)
	}
	w.t.Fatalf("it does not have the lock of %s", lock)
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
	const waits, tries = "Acquire", "TryAcquire"
	for _, one := range []struct {
		lock, method string
		act          func(context.Context, *client.Client) error
	}{
		{office, waits, campaign},
		{semDir + "/" + turnstileName, waits, acquire},
		{semDir + "/" + slotName(0), tries, acquire},
	} {
		for _, now := range []bool{false, true} {
			inSmallWorld(t, func(w *world) {
				operator, d := w.dial("operator"), w.deaf("deaf", one.method)
				done := make(chan error, 1)
				go func() {
					ctx, cancel := w.brief(time.Minute)
					defer cancel()
					done <- one.act(ctx, d.Client)
				}()
				w.robbed(operator, d, one.lock, now)
				if err := <-done; err != nil {
					t.Errorf("%s, now %v: %v", one.lock, now, err)
				}
				w.lives(d.Client)
			})
		}
	}
}

// So it is with a slot that was waited for among others.
func TestTakenFromWhoWaitsForAll(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			operator, d := w.dial("operator"), w.deaf("deaf", "Acquire")
			d.listens.Store(true)
			s := NewSemaphore(operator, semDir, 2)
			var held []*Permit
			for range 2 {
				p, err := s.Acquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				w.ok(err)
				held = append(held, p)
			}
			done := make(chan error, 1)
			go func() {
				ctx, cancel := w.brief(time.Minute)
				defer cancel()
				p, err := NewSemaphore(d.Client, semDir, 2).Acquire(ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				if err == nil {
					err = p.Release(ctx)
				}
				done <- err
			}()
			pass(time.Second)
			d.listens.Store(false)
			w.ok(held[0].Release(w.ctx))
			w.robbed(operator, d, semDir+"/slot-", now)
			w.ok(<-done)
			w.ok(held[1].Release(w.ctx))
			w.lives(d.Client)
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
			one, two, operator := w.dial("h1"), w.dial("h2"), w.dial("operator")
			lost, err := NewSemaphore(one, semDir, 2).Acquire(w.ctx, o)
			w.ok(err)
			other, err := NewSemaphore(operator, semDir, 2).Acquire(w.ctx, o)
			w.ok(err)
			w.Expire(one.Session())
			type result struct {
				p   *Permit
				err error
			}
			got := make(chan result, 1)
			go func() {
				p, err := NewSemaphore(two, semDir, 2).Acquire(w.ctx, o)
				got <- result{p, err}
			}()
			pass(5 * time.Second)
			w.rm(operator, semDir+"/"+slotName(lost.Slot()))
			pass(time.Second)
			want := lost.Slot()
			if freed {
				want = other.Slot()
				w.ok(other.Release(w.ctx))
			}
			select {
			case r := <-got:
				w.ok(r.err)
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
				operator := w.dial("operator")
				w.Slow("far", way)
				cfg := w.config("far")
				cfg.NoCache = true // so that nobody waits for it
				far, err := client.New(w.ctx, cfg)
				w.ok(err)
				defer end(far)
				s := NewSemaphore(operator, semDir, n)
				free, err := s.Acquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
				w.ok(err)
				for range n - 1 {
					_, err := s.Acquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
					w.ok(err)
				}
				w.ok(free.Release(w.ctx))
				slot := slotName(free.Slot())
				w.rm(operator, semDir+"/"+slot)
				got := make(chan error, 1)
				go func() {
					ctx, cancel := w.brief(time.Minute)
					defer cancel()
					p, err := acquire(NewSemaphore(far, semDir, n), ctx, SemaphoreOptions{LockDelay: NoLockDelay})
					if err == nil {
						err = p.Release(ctx)
					}
					got <- err
				}()
				dir := w.read(operator, semDir)
				isThere := func(one api.Stat) bool { return one.Path.Base() == slot }
				for there := false; !there; pass(way / 10) {
					list, err := dir.ReadDir(w.ctx)
					w.ok(err)
					there = slices.ContainsFunc(list, isThere)
				}
				w.rm(operator, semDir+"/"+slot) // far has not heard yet that it is open
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
		one, two := w.dial("h1"), w.dial("h2")
		h, err := one.Open(w.ctx, "/ls/local/z", client.OpenOptions{Write: true, Create: client.File})
		w.ok(err)
		_, err = h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		failed := make(chan error, 1)
		go func() {
			_, err := AcquireAll(w.ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: NoLockDelay})
			failed <- err
		}()
		pass(time.Second)
		w.ok(h.Delete(w.ctx))
		if err := <-failed; !errors.Is(err, api.HandleClosed) || errors.Is(err, client.LockReleased) {
			t.Errorf("%v", err)
		}
		locks, err := one.Cell().LocksOf(w.ctx, two.Session())
		if err != nil || len(locks) != 0 {
			t.Errorf("%v, %v", locks, err)
		}
	})
}
