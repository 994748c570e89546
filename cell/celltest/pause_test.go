package celltest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// sleeper is a client that is stopped while it holds a lock and has the lock's
// file in its cache.
type sleeper struct {
	*host
	file *client.Handle
	lock *client.Lock
}

// waking is the first call of a client when it resumes.
type waking struct {
	name   string
	ofLock bool // its answer is about the lock, not about the session
	call   func(ctx context.Context, s sleeper) (got any, err error)
}

func wakings() []waking {
	return []waking{
		{"does nothing", true, func(_ context.Context, s sleeper) (any, error) {
			select {
			case <-s.lock.Context().Done():
				return nil, context.Cause(s.lock.Context())
			case <-time.After(101 * time.Millisecond): // the library checks every 100 ms
				return "a lock", nil
			}
		}},
		{"asks for its lock", true, func(_ context.Context, s sleeper) (any, error) { return "a lock", s.lock.Err() }},
		{"asks for its time", true, func(_ context.Context, s sleeper) (any, error) {
			if left := s.lock.ExclusiveUntil(); left > 0 {
				return left, nil
			}
			return nil, s.lock.Err()
		}},
		{"reads", false, func(ctx context.Context, s sleeper) (any, error) {
			text, _, err := s.file.Contents(ctx)
			return text, err
		}},
		{"looks", false, func(ctx context.Context, s sleeper) (any, error) { return s.file.Stat(ctx) }},
		{"opens", false, func(ctx context.Context, s sleeper) (any, error) {
			return s.Open(ctx, s.file.Path(), client.OpenOptions{Read: true})
		}},
		{"writes", false, func(ctx context.Context, s sleeper) (any, error) {
			return s.file.SetContents(ctx, []byte("old"), client.IfSequencer(s.lock.Sequencer()))
		}},
		{"releases", false, func(ctx context.Context, s sleeper) (any, error) { return "released", s.lock.Release(ctx) }},
	}
}

// TestStoppedPastItsLease: a process is stopped for longer than its lease, and
// others change what it has cached and take its lock. When it resumes, no call
// uses the cache or the lock, whichever call is the first (Chubby §2.7, §2.8).
// The lock's context ends although no message arrives.
func TestStoppedPastItsLease(t *testing.T) {
	for _, stop := range []struct {
		delay, pause  time.Duration
		lock, session client.Cause // why they ended
	}{
		{0, 40 * time.Second, client.LeaseNearEnd, client.EndedByCell},
		{api.DefaultLockDelay, 40 * time.Second, client.LeaseNearEnd, client.EndedByCell},
		{api.DefaultLockDelay, 2 * time.Minute, client.GraceOver, client.GraceOver},
	} {
		t.Run(fmt.Sprintf("lock-delay %v, for %v", stop.delay, stop.pause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := celltest.Start(t, 3)
				next := dial(t, c, "next")
				sleepers, hosts := map[string]sleeper{}, []string{}
				for _, w := range wakings() {
					s := sleeper{host: dial(t, c, w.name)}
					s.file = s.open(t, "/ls/local/"+w.name, stop.delay)
					put(t, s.file, "old")
					s.lock = acquire(t, s.file)
					contents(t, s.file, "old")
					sleepers[w.name], hosts = s, append(hosts, w.name)
				}
				began := time.Now()
				c.Pause(hosts...)
				for _, s := range sleepers {
					h := next.open(t, s.file.Path(), 0)
					put(t, h, "new")
					acquire(t, h)
				}
				time.Sleep(stop.pause - time.Since(began)) // it is stopped all this time, and must not notice anything
				for name, s := range sleepers {
					if s.lock.Err() != nil || s.State() != session.Safe {
						t.Errorf("%s: the stopped client learnt that its lock was lost: %v, %v", name, s.lock.Err(), s.State())
					}
				}
				c.Resume(hosts...)
				var waking sync.WaitGroup
				for _, w := range wakings() {
					waking.Go(func() {
						want := stop.session
						if w.ofLock {
							want = stop.lock
						}
						if got, err := w.call(t.Context(), sleepers[w.name]); !errors.Is(err, want) {
							t.Errorf("first call %s: %v, %v; want: %v", w.name, got, err, want)
						}
					})
				}
				waking.Wait()
			})
		})
	}
}

// TestStoppedForLess: a client is stopped for longer than the rest of its
// lease, but the cell does not end the session, because another master took
// over and began the lease again. Afterwards the session is in jeopardy, and
// then safe, and nothing is lost (Chubby §2.8).
func TestStoppedForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		s := sleeper{host: dial(t, c, "sleeper")}
		s.file = s.open(t, "/ls/local/file", api.DefaultLockDelay)
		put(t, s.file, "old")
		s.lock = acquire(t, s.file)
		contents(t, s.file, "old")
		other := dial(t, c, "other").open(t, "/ls/local/file", 0)
		for s.Left() > 6*time.Second {
			time.Sleep(100 * time.Millisecond)
		}
		c.Pause("sleeper")
		c.FailOver()
		var writing sync.WaitGroup
		writing.Go(func() { put(t, other, "new") }) // waits for the cache of the sleeper, and not for its session
		time.Sleep(8 * time.Second)
		if _, err := other.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockHeld) {
			t.Errorf("the lock of the session: %v", err)
		}
		if states := s.seen(); states != nil {
			t.Errorf("the stopped client saw the states %v", states)
		}
		c.Resume("sleeper")
		if s.State() != session.Jeopardy {
			t.Errorf("after it resumed it was %v", s.State())
		}
		writing.Wait()
		contents(t, s.file, "new")
		if err := s.CheckSequencer(t.Context(), s.lock.Sequencer().String()); err != nil || s.lock.Err() != nil {
			t.Errorf("its lock: %v, %v", err, s.lock.Err())
		}
		synctest.Wait() // calls go on as soon as it is safe, and it is told of that beside them
		if states, want := s.seen(), []session.State{session.Jeopardy, session.Safe}; !slices.Equal(states, want) {
			t.Errorf("it was %v, want %v", states, want)
		}
	})
}

// TestStoppedMaster: a master that is stopped until another is elected does not
// serve when it resumes, and no client loses anything.
func TestStoppedMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		h := dial(t, c, "client")
		file := h.open(t, "/ls/local/file", 0)
		lock := acquire(t, file)
		for range 5 {
			master := c.Master()
			c.Pause(master)
			time.Sleep(20 * time.Second)
			put(t, file, master)
			c.Resume(master)
			contents(t, file, master)
			if now := c.Master(); now == master {
				t.Errorf("%s is the master again", now)
			}
			time.Sleep(20 * time.Second)
		}
		if lock.Err() != nil || h.CheckSequencer(t.Context(), lock.Sequencer().String()) != nil {
			t.Errorf("its lock: %v", lock.Err())
		}
	})
}

// contents checks the contents that a read returns.
func contents(t *testing.T, h *client.Handle, want string) {
	t.Helper()
	if text, _, err := h.Contents(t.Context()); err != nil || string(text) != want {
		t.Errorf("read %q, %v; want %q", text, err, want)
	}
}
