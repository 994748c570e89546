//go:build linux

package recipe

import (
	"context"
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// What is held says where it is, that it is held, and why it is not any more.
func TestWhatIsHeldSaysSo(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		for _, dir := range []string{"sem", "members", "svc"} {
			w.mkdir(c, "/ls/local/"+dir)
		}
		semaphore := NewSemaphore(c, "/ls/local/sem", 1)
		permit, err := semaphore.Acquire(w.ctx, SemaphoreOptions{LockDelay: NoLockDelay})
		w.ok(err)
		lock := NewRWLock(c, "/ls/local/rw", RWLockOptions{LockDelay: NoLockDelay})
		read, err := lock.RLock(w.ctx)
		w.ok(err)
		write, err := NewRWLock(c, "/ls/local/rw2", RWLockOptions{LockDelay: NoLockDelay}).Lock(w.ctx)
		w.ok(err)
		primary, err := Campaign(w.ctx, c, "/ls/local/primary", CampaignOptions{LockDelay: NoLockDelay})
		w.ok(err)
		locks, err := AcquireAll(w.ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: NoLockDelay})
		w.ok(err)
		presence, err := Announce(w.ctx, c, "/ls/local/members", "one", nil)
		w.ok(err)
		publication, err := Publish(w.ctx, c, "/ls/local/svc", Endpoint{Address: "one:1"})
		w.ok(err)
		pass, err := NewDoubleBarrier(c, "/ls/local/party", 1).Enter(w.ctx)
		w.ok(err)
		type held interface {
			Context() context.Context
			Err() error
		}
		all := map[string]held{
			"/ls/local/sem/slot-000": permit, "/ls/local/rw": read, "/ls/local/rw2": write, "/ls/local/primary": primary, "several": locks,
			"/ls/local/members/one": presence, "/ls/local/svc/one:1": publication,
			"/ls/local/party/" + pass.name: pass,
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
		w.settle()
		check(true)
	})
}

// A process that was stopped for longer than its lease finds it out by Err itself, before a timer has fired.
func TestErrOfWhatIsHeldReadsTheClock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		locks, err := AcquireAll(w.ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: NoLockDelay})
		w.ok(err)
		presence, err := Announce(w.ctx, c, "/ls/local/members", "one", nil)
		w.ok(err)
		pass, err := NewDoubleBarrier(c, "/ls/local/party", 1).Enter(w.ctx)
		w.ok(err)
		w.Jump("h1", api.DefaultLease+api.DefaultGrace)
		if locks.Err() == nil || presence.Err() == nil || pass.Err() == nil {
			t.Errorf("%v, %v, %v", locks.Err(), presence.Err(), pass.Err())
		}
	})
}
