package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// latencies are those of one operation.
type latencies []time.Duration

// p returns a percentile.
func (l latencies) p(percent int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(10 * time.Microsecond)
}

// figures are what an honest client has measured.
type figures struct{ locks, reads latencies }

// String is for the log.
func (f figures) String() string {
	return fmt.Sprintf("lock+unlock %v %v, read %v %v of %d", f.locks.p(50), f.locks.p(99), f.reads.p(50), f.reads.p(99), len(f.reads))
}

// honest is a client that does as it should: it locks and unlocks, and reads, a hundred times a second each. Other sessions
// of it are idle.
type honest struct {
	sessions []*client.Client
	epoch    api.Epoch

	mu       sync.Mutex // guards what follows
	measured *figures   // nil while nothing is measured
	failed   error
}

func newHonest(t *testing.T, w *world, own client.TLSFiles) *honest {
	t.Helper()
	h := &honest{}
	for range 20 {
		h.sessions = append(h.sessions, w.clientFor(t, client.Config{TLS: own, NoCache: true}))
	}
	h.epoch = h.sessions[0].Epoch()
	ctx, cancel := context.WithCancel(context.Background())
	open := func(c *client.Client, name string) *client.Handle {
		handle, err := c.Open(ctx, w.path(name), client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: make([]byte, 256)})
		if err != nil {
			t.Fatal(err)
		}
		return handle
	}
	lock, file := open(h.sessions[0], "honest-lock"), open(h.sessions[1], "honest-file")
	var working sync.WaitGroup
	working.Go(func() {
		h.repeat(ctx, func(f *figures) *latencies { return &f.locks }, func() error {
			held, err := lock.Acquire(ctx, api.Exclusive)
			if err != nil {
				return err
			}
			return held.Release(ctx)
		})
	})
	working.Go(func() {
		h.repeat(ctx, func(f *figures) *latencies { return &f.reads }, func() error {
			_, _, err := file.Contents(ctx)
			return err
		})
	})
	t.Cleanup(func() {
		cancel()
		working.Wait()
	})
	return h
}

// repeat does something a hundred times a second, and measures how long after it was due it was done.
func (h *honest) repeat(ctx context.Context, of func(*figures) *latencies, do func() error) {
	const every = 10 * time.Millisecond
	for due := time.Now(); ctx.Err() == nil; {
		time.Sleep(time.Until(due))
		err := do()
		ended := time.Now()
		h.mu.Lock()
		if err != nil && ctx.Err() == nil {
			h.failed = err
		}
		for ; !due.After(ended); due = due.Add(every) { // what was due meanwhile was not done in time either
			if h.measured != nil {
				one := of(h.measured)
				*one = append(*one, ended.Sub(due))
			}
		}
		h.mu.Unlock()
	}
}

// begin begins to measure.
func (h *honest) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.measured = &figures{}
}

// end returns what was measured.
func (h *honest) end() figures {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := *h.measured
	h.measured = nil
	return f
}

// during measures for a while.
func (h *honest) during(span time.Duration) figures {
	h.begin()
	time.Sleep(span)
	return h.end()
}

// watched is during, with the replica read as it is during an attack.
func (h *honest) watched(t *testing.T, r replica, span time.Duration) figures {
	t.Helper()
	h.begin()
	const between = looksPerReading * betweenLooks
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(min(between, time.Until(end))) {
		readingOf(t, r)
	}
	return h.end()
}

// check reports what an honest client has lost.
func (h *honest) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		t.Errorf("a call failed: %v", h.failed)
	}
	for _, c := range h.sessions {
		if c.Err() != nil || c.Epoch() != h.epoch && alone() { // a disk that takes seconds costs a master its place
			t.Errorf("a session: epoch %d, %v; it began in epoch %d", c.Epoch(), c.Err(), h.epoch)
		}
	}
}
