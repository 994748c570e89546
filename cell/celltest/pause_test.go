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
	"github.com/chubbylock/chubby/cell"
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
				c := celltest.Start(t, 1)
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

// calm has replicas stand for election as late as they may, so that heartbeats are few.
func calm(cfg *cell.Config) { cfg.ElectionTimeout = cell.MaxElectionTimeout }

// TestStoppedMaster: a master that is stopped until another is elected does not
// serve when it resumes, and no client loses anything.
func TestStoppedMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3, calm)
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

// TestWallClockSteps: on any replica, during a lease or a lock-delay, the time
// of day is set an hour forward or back. That has no effect on any session,
// lock, lock-delay or cache. Only the "since" that people see follows it.
func TestWallClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3, calm)
		steady, next, other := dial(t, c, "steady"), dial(t, c, "next"), dial(t, c, "other")
		file := steady.open(t, "/ls/local/file", api.DefaultLockDelay)
		put(t, file, "as it was")
		held := acquire(t, file)
		rival := other.open(t, "/ls/local/file", 0)
		epoch := steady.Epoch()
		for i, step := range []struct {
			id string
			by time.Duration
		}{{"r1", time.Hour}, {"r2", time.Hour}, {"r3", time.Hour}, {"r1", -time.Hour}, {"r2", -time.Hour}, {"r3", -time.Hour}} {
			contents(t, file, "as it was")
			read := steady.Stats().Cache
			path := fmt.Sprint("/ls/local/lock", i)
			passesOn(t, c, dial(t, c, path), next.open(t, path, 0), step.id, step.by)
			if shown := since(t, other, path); i == 2 && shown < time.Hour || i == 5 && shown > time.Minute {
				t.Errorf("after the step of %v by %v, the lock is shown to be held since %v ahead of the true time", step.id, step.by, shown)
			}
			contents(t, file, "as it was")
			if now := steady.Stats().Cache; now.Hits != read.Hits+1 || now.Misses != read.Misses {
				t.Errorf("the cache: %+v, then %+v", read, now)
			}
			if _, err := rival.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockHeld) {
				t.Errorf("the lock of a session that lives: %v", err)
			}
		}
		for _, h := range []*host{steady, next, other} {
			if states := h.seen(); states != nil || h.State() != session.Safe || h.Epoch() != epoch {
				t.Errorf("%s: %v in between, %v at the end; epoch %v, then %v", h.name, states, h.State(), epoch, h.Epoch())
			}
		}
		for id, by := range map[string]time.Duration{"r1": time.Hour, "r2": -time.Hour, "r3": 0} {
			c.StepWall(id, by)
		}
		c.Transfer()
		contents(t, file, "as it was")
		if err := steady.CheckSequencer(t.Context(), held.Sequencer().String()); err != nil || held.Err() != nil {
			t.Errorf("the lock: %v, %v", err, held.Err())
		}
	})
}

// passesOn cuts the holder of a lock off, and sets the time of day of a
// replica: during the lease, back, and again during the lock-delay. The lock
// must pass on as it would without that.
func passesOn(t *testing.T, c *celltest.Cell, holder *host, next *client.Handle, id string, by time.Duration) {
	t.Helper()
	const delay = api.DefaultLockDelay
	acquire(t, holder.open(t, next.Path(), delay))
	cut := time.Now()
	c.Cut(holder.name)
	time.Sleep(3 * time.Second)
	c.StepWall(id, by)
	time.Sleep(api.DefaultLease)
	c.StepWall(id, -by)
	time.Sleep(time.Second)
	c.StepWall(id, by)
	acquire(t, next)
	// A client that has just got a lock has most of a lease before it.
	least, most := api.DefaultLease-time.Second+delay, api.DefaultLease+delay+time.Second
	if took := time.Since(cut); took < least || took > most {
		t.Errorf("%s stepped by %v: the lock passed on after %v, want %v to %v", id, by, took, least, most)
	}
}

// TestJump: a client whose clock is ahead gives up its lease or its session too
// early. A replica with a wrong clock ends no session.
func TestJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3, calm)
		steady, hasty, lost := dial(t, c, "steady"), dial(t, c, "hasty"), dial(t, c, "lost")
		c.Jump("hasty", api.DefaultLease)
		c.Jump("lost", api.DefaultLease+api.DefaultGrace)
		time.Sleep(20 * time.Second) // the KeepAlive that is under way, and another
		if states, want := hasty.seen(), []session.State{session.Jeopardy, session.Safe}; !slices.Equal(states, want) {
			t.Errorf("the hasty client was %v, want %v", states, want)
		}
		if !errors.Is(lost.Err(), client.GraceOver) {
			t.Errorf("the lost client: %v", lost.Err())
		}
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			for _, id := range []string{"r1", "r2", "r3"} {
				c.Jump(id, by)
				time.Sleep(20 * time.Second)
			}
		}
		for _, h := range []*host{steady, hasty} {
			if states := h.seen(); states != nil || h.State() != session.Safe {
				t.Errorf("%s: %v because of a replica's clock, %v at the end", h.name, states, h.State())
			}
		}
	})
}

// since returns how much later than now the listing says that the lock's hold
// began.
func since(t *testing.T, h *host, path string) time.Duration {
	t.Helper()
	locks, err := h.Cell().Locks(t.Context(), path)
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
		t.Fatalf("%+v, %v", locks, err)
	}
	return time.Until(time.Unix(locks[0].Holders[0].SinceUnix, 0)).Round(time.Minute)
}
