package celltest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// store is what the lock protects: a server that refuses tokens older than the
// newest that it has seen.
type store struct {
	mu      sync.Mutex // guards what follows
	newest  uint64
	refused int
}

// write is one request; it reports whether the store accepted it.
func (s *store) write(token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.newest {
		s.refused++
		return false
	}
	s.newest = token
	return true
}

// fill is the work of a worker: it writes until ctx ends, or the store refuses.
func (s *store) fill(ctx context.Context, token uint64) {
	for s.write(token) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// TestWorker makes a failure for the one of two workers that works. It checks
// which one works afterwards, that both are registered, and that no worker
// wrote to the store after the other had.
func TestWorker(t *testing.T) {
	const enough = 30 * time.Second // for all timeouts, and for both workers to come back
	for _, trouble := range []struct {
		name   string
		make   func(c *celltest.Cell, busy api.Holder)
		passes bool // the work passes on to the other
		late   bool // the first cannot know in time; the store has to refuse it
	}{
		{"session expired", func(c *celltest.Cell, busy api.Holder) { c.Expire(busy.Session) }, true, false},
		{"cut off for a moment", func(c *celltest.Cell, busy api.Holder) {
			c.Cut(busy.Principal)
			time.Sleep(3 * time.Second)
			c.Heal(busy.Principal)
		}, false, false},
		{"cut off past lease and lock-delay", func(c *celltest.Cell, busy api.Holder) {
			c.Cut(busy.Principal)
			time.Sleep(api.DefaultLease + api.DefaultLockDelay + time.Second)
			c.Heal(busy.Principal)
		}, true, false},
		{"cut off past the grace period", func(c *celltest.Cell, busy api.Holder) {
			c.Cut(busy.Principal)
			time.Sleep(2 * time.Minute)
			c.Heal(busy.Principal)
		}, true, false},
		{"paused past lease and lock-delay", func(c *celltest.Cell, busy api.Holder) {
			c.Pause(busy.Principal)
			time.Sleep(40 * time.Second)
			c.Resume(busy.Principal)
		}, true, true},
		{"master killed", func(c *celltest.Cell, _ api.Holder) { c.FailOver() }, false, false},
		{"mastership transferred", func(c *celltest.Cell, _ api.Holder) { c.Transfer() }, false, false},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := celltest.Start(t, 3), &store{}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait() // before the cell stops
				defer cancel()
				for _, name := range []string{"anna", "bert"} {
					w := &worker{name: name, work: s.fill, config: client.Config{
						Servers: c.Servers(), Dialer: c.DialFrom(name), Clock: c.ClockOf(name), As: name,
					}}
					running.Go(func() { w.run(ctx) })
				}
				time.Sleep(enough)
				before := holder(t, c)
				trouble.make(c, before)
				time.Sleep(enough)
				after := holder(t, c)
				if passed := before.Principal != after.Principal; passed != trouble.passes {
					t.Errorf("%s worked before, and %s works now", before.Principal, after.Principal)
				}
				if late := s.refused > 0; late != trouble.late {
					t.Errorf("the store refused %d writes", s.refused)
				}
			})
		})
	}
}

// holder returns the lock's holder, and checks that both workers are
// registered.
func holder(t *testing.T, c *celltest.Cell) api.Holder {
	t.Helper()
	watcher, err := client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close(t.Context())
	for _, name := range []string{"anna", "bert"} {
		if _, err := watcher.Open(t.Context(), "/ls/local/up-"+name, client.OpenOptions{Read: true}); err != nil {
			t.Errorf("%s is not registered: %v", name, err)
		}
	}
	locks, err := watcher.Cell().Locks(t.Context(), "")
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
		t.Fatalf("want one lock with one holder: %+v, %v", locks, err)
	}
	return locks[0].Holders[0]
}
