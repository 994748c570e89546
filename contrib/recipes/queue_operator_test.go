//go:build linux

package recipes

import (
	"errors"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
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

// A lock that an operator takes away in the moment in which it is granted is waited for again: a worker that wants an item, or its turn, gets
// it.
func TestTakenInTheMomentOfTheGrant(t *testing.T) {
	t.Parallel()
	for lock, method := range map[string]string{queueDir + "/" + turnstileName: "Acquire", queueDir + "/" + taskPrefix: "TryAcquire"} {
		for _, now := range []bool{false, true} {
			inSmallWorld(t, func(w *world) {
				operator, d := w.dial("operator"), w.deaf("deaf", method)
				_, err := NewQueue(operator, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Put(w.ctx, nil)
				w.ok(err)
				done := make(chan error, 1)
				go func() {
					ctx, cancel := w.brief(time.Minute)
					defer cancel()
					item, err := NewQueue(d.Client, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay}).Take(ctx)
					if err == nil {
						err = item.Done(ctx)
					}
					done <- err
				}()
				w.robbed(operator, d, lock, now)
				if err := <-done; err != nil {
					t.Errorf("%s, now %v: %v", lock, now, err)
				}
				w.lives(d.Client)
			})
		}
	}
}

// holds reports whether a session holds a lock.
func holds(l client.LockInfo, session api.SessionID) bool {
	return slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return h.Session == session })
}

// lives fails the test if a session is over some leases later: the cell extends none whose owner keeps a
// lock that was taken away.
func (w *world) lives(c *client.Client) {
	w.t.Helper()
	pass(2 * time.Minute)
	if err := c.Err(); err != nil {
		w.t.Errorf("the session is over: %v", err)
	}
}

// One whose turn is taken away by an operator keeps its session, and goes on waiting.
func TestTurnIsBroken(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, operator := w.dial("h1"), w.dial("operator")
		q := NewQueue(one, queueDir, QueueOptions{})
		took := make(chan error, 1)
		go func() {
			item, err := q.Take(w.ctx)
			if err == nil {
				err = item.Done(w.ctx)
			}
			took <- err
		}()
		pass(5 * time.Second)
		w.ok(operator.BreakLock(w.ctx, queueDir+"/"+turnstileName, "a test", false))
		w.lives(one)
		if _, err := NewQueue(operator, queueDir, QueueOptions{}).Put(w.ctx, nil); err != nil {
			t.Error(err)
		}
		w.ok(<-took)
	})
}

// An item says where it is, that it is held, and why it is not any more.
func TestItemSaysWhatItIs(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		q := NewQueue(c, queueDir, QueueOptions{LockDelay: recipe.NoLockDelay})
		id, err := q.Put(w.ctx, nil)
		w.ok(err)
		item, err := q.Take(w.ctx)
		w.ok(err)
		if item.Path() != queueDir+"/task-"+id || item.Err() != nil || item.Context().Err() != nil {
			t.Errorf("%s: %v, %v", item.Path(), item.Err(), item.Context().Err())
		}
		w.Expire(c.Session())
		<-c.Done()
		w.settle()
		if err := item.Err(); !errors.Is(err, api.SessionExpired) || item.Context().Err() == nil {
			t.Errorf("%v, %v", err, item.Context().Err())
		}
	})
}
