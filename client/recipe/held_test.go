//go:build linux

package recipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// What is given back by one whose time is over is given back, also while the cell is away.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		lock := NewRWLock(one, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay})
		over, cancel := context.WithCancel(w.Ctx)
		cancel()
		for range 3 {
			l, err := lock.Lock(w.Ctx)
			w.OK(err)
			w.Cut("h1")
			if err := l.Release(over); !errors.Is(err, api.Uncertain) {
				t.Errorf("Release at the end of the context: %v", err)
			}
			ctx, cancel := w.Brief(2 * time.Second)
			if err := l.Release(ctx); !errors.Is(err, api.Uncertain) {
				t.Errorf("Release while the cell is away: %v", err)
			}
			cancel()
			w.Heal("h1")
			ctx, cancel = w.Brief(2 * time.Second)
			other, err := NewRWLock(two, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay}).Lock(ctx)
			w.OK(err)
			cancel()
			w.OK(other.Release(w.Ctx))
			w.OK(l.Release(w.Ctx))
		}
	})
}

// What a recipe holds is given back at once, also by those whose context has ended, as
// that of a program that got a signal. The session stays open, and frees nothing.
func TestGivenBackWithEndedContext(t *testing.T) {
	t.Parallel()
	const delay = api.DefaultLockDelay
	recipetest.GivesBack(t, map[string]recipetest.Take{
		"permit": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := NewSemaphore(c, "/ls/local/semaphore", 1).Acquire(w.Ctx, SemaphoreOptions{LockDelay: delay})
			return p.Release, err
		},
		"write lock": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			l, err := NewRWLock(c, "/ls/local/file", RWLockOptions{LockDelay: delay}).Lock(w.Ctx)
			return l.Release, err
		},
		"locks": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			l, err := AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: delay})
			return l.Release, err
		},
		"presence": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Announce(w.Ctx, c, "/ls/local/up", "name", nil)
			return p.Withdraw, err
		},
		"publication": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Publish(w.Ctx, c, "/ls/local/service", Endpoint{Address: "127.0.0.1:9999"})
			return p.Withdraw, err
		},
		"primary": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Campaign(w.Ctx, c, "/ls/local/primary", CampaignOptions{Name: "name", LockDelay: delay})
			return p.Resign, err
		},
	})
}

// What is held says where it is, that it is held, and why it is not any more.
func TestWhatIsHeldSaysSo(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		for _, dir := range []string{"sem", "members", "svc"} {
			w.Mkdir(c, "/ls/local/"+dir)
		}
		semaphore := NewSemaphore(c, "/ls/local/sem", 1)
		permit, err := semaphore.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay})
		w.OK(err)
		lock := NewRWLock(c, "/ls/local/rw", RWLockOptions{LockDelay: NoLockDelay})
		read, err := lock.RLock(w.Ctx)
		w.OK(err)
		write, err := NewRWLock(c, "/ls/local/rw2", RWLockOptions{LockDelay: NoLockDelay}).Lock(w.Ctx)
		w.OK(err)
		primary, err := Campaign(w.Ctx, c, "/ls/local/primary", CampaignOptions{LockDelay: NoLockDelay})
		w.OK(err)
		locks, err := AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: NoLockDelay})
		w.OK(err)
		presence, err := Announce(w.Ctx, c, "/ls/local/members", "one", nil)
		w.OK(err)
		publication, err := Publish(w.Ctx, c, "/ls/local/svc", Endpoint{Address: "one:1"})
		w.OK(err)
		type held interface {
			Context() context.Context
			Err() error
		}
		all := map[string]held{
			"/ls/local/sem/slot-000": permit, "/ls/local/rw": read, "/ls/local/rw2": write, "/ls/local/primary": primary, "several": locks,
			"/ls/local/members/one": presence, "/ls/local/svc/one:1": publication,
		}
		check := func(ended bool) {
			t.Helper()
			for path, one := range all {
				if err := one.Err(); (err != nil) != ended || ended && !errors.Is(err, api.SessionExpired) {
					t.Errorf("%s: %v; ended %v", path, err, ended)
				}
				if at, ok := one.(interface{ Path() string }); ok != (path != "several") || ok && at.Path() != path {
					t.Errorf("%s: has a path %v", path, ok)
				}
				waits, ok := one.(interface{ Done() <-chan struct{} })
				if !ok {
					t.Errorf("%s: has no Done", path)
					continue
				}
				select {
				case <-waits.Done():
					if !ended {
						t.Errorf("%s is done", path)
					}
				default:
					if ended {
						t.Errorf("%s is not done", path)
					}
				}
			}
		}
		check(false)
		w.Expire(c.Session())
		<-c.Done()
		w.Settle()
		check(true)
	})
}

// A process that was stopped for longer than its lease finds it out by Err itself, before a timer has fired.
func TestErrOfWhatIsHeldReadsTheClock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		locks, err := AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: NoLockDelay})
		w.OK(err)
		presence, err := Announce(w.Ctx, c, "/ls/local/members", "one", nil)
		w.OK(err)
		w.Jump("h1", api.DefaultLease+api.DefaultGrace)
		if locks.Err() == nil || presence.Err() == nil {
			t.Errorf("%v, %v", locks.Err(), presence.Err())
		}
	})
}
