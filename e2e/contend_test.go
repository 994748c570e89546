package e2e

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// lastIndex is the index of the last entry in the master's log.
func (w *world) lastIndex() uint64 {
	s := w.status()
	for _, r := range s.Replicas {
		if r.ID == s.Master {
			return r.Last
		}
	}
	w.t.Fatal("the master is not among the replicas")
	return 0
}

// A hundred hand-overs among waiters cost a hundred entries: each Release names the next
// holder, and the grant is in the same entry. The waiters' own requests cost none while they wait.
// The test counts by how much the last index of the log grows while nothing else happens in the
// cell; it allows two entries for other things.
func TestHandOverEntries(t *testing.T) {
	besideOthers(t)
	w := newWorld(t)
	w.env = steadyMaster() // the election of a master costs entries, too
	w.run()
	const waiters, each = 10, 10
	ctx, cancel := context.WithTimeout(context.Background(), patience(60*time.Second))
	defer cancel()
	first := w.handle(ctx, w.client(client.Config{}), "/ls/local/a")
	held, err := first.Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	var waiting, handed sync.WaitGroup
	var grants atomic.Int64
	var longest atomic.Int64
	var released atomic.Int64
	for range waiters {
		h := w.handle(ctx, w.client(client.Config{}), "/ls/local/a")
		waiting.Add(1)
		handed.Go(func() {
			var once sync.Once
			for range each {
				l, err := h.Acquire(ctx, api.Exclusive, client.OnQueued(func(client.Queued) { once.Do(waiting.Done) }))
				if err != nil {
					t.Error(err)
					return
				}
				longest.Store(max(longest.Load(), time.Now().UnixNano()-released.Load()))
				grants.Add(1)
				released.Store(time.Now().UnixNano())
				if err := l.Release(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	waiting.Wait()
	before := w.lastIndex()
	released.Store(time.Now().UnixNano())
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	handed.Wait()
	grown := w.lastIndex() - before
	// Reading the index opens no session, so it costs no entry.
	t.Logf("%d hand-overs grew the log by %d entries; the slowest took %v", grants.Load(), grown, time.Duration(longest.Load()))
	if grants.Load() != waiters*each || grown > waiters*each+2 {
		t.Errorf("%d grants grew the log by %d entries; want at most two more than there were releases", grants.Load(), grown)
	}
}

// handle opens a lock file.
func (w *world) handle(ctx context.Context, c *client.Client, path string) *client.Handle {
	w.t.Helper()
	h, err := c.Open(ctx, path, client.OpenOptions{Read: true, Write: true, Create: client.File})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// Ten contenders share a lock evenly. A witness, to which they report when they enter and leave,
// sees no overlap, and tokens grow.
func TestContenders(t *testing.T) {
	w := start(t)
	const contenders = 10
	span := time.Duration(*rounds) * 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), span+patience(30*time.Second))
	defer cancel()
	var inside, overlaps, last atomic.Int64
	counts := make([]int, contenders)
	var total atomic.Int64
	var handles []*client.Handle // opened before: who began earlier would have more turns
	for range contenders {
		handles = append(handles, w.handle(ctx, w.client(client.Config{}), "/ls/local/contended"))
	}
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for i, h := range handles {
		all.Go(func() {
			for time.Now().Before(end) || total.Load() < 20*contenders { // a slow disk allows few in that time
				l, err := h.Acquire(ctx, api.Exclusive)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					overlaps.Add(1)
				}
				if int64(l.Token()) <= last.Swap(int64(l.Token())) {
					overlaps.Add(1)
				}
				counts[i]++
				total.Add(1)
				time.Sleep(time.Millisecond) // so that another holder would be seen
				inside.Add(-1)
				if err := l.Release(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	least, most := counts[0], counts[0]
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	t.Logf("%d acquisitions in %v: %v", total.Load(), span, counts)
	if overlaps.Load() > 0 {
		t.Errorf("%d overlaps", overlaps.Load())
	}
	if least == 0 || float64(most-least) > 0.1*float64(most)+1 {
		t.Errorf("counts from %d to %d differ by more than a tenth", least, most)
	}
}

// Bad input is a clear error, and nothing is done.
func TestBadInput(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	c := w.client(client.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := c.Open(ctx, "/ls/local/a//b", client.OpenOptions{Read: true}); !errors.Is(err, api.InvalidPath) {
		t.Errorf("a path outside the grammar: %v", err)
	}
	if _, err := c.Open(ctx, "/ls/elsewhere/a", client.OpenOptions{Read: true}); !errors.Is(err, api.WrongCell) {
		t.Errorf("another cell's path: %v", err)
	}
	h := w.handle(ctx, c, w.path("file"))
	if _, err := h.SetContents(ctx, make([]byte, api.MaxContents)); err != nil {
		t.Errorf("256 KiB: %v", err)
	}
	if _, err := h.SetContents(ctx, make([]byte, api.MaxContents+1)); !errors.Is(err, api.TooLarge) {
		t.Errorf("256 KiB and a byte: %v", err)
	}
	if contents, _, err := h.Contents(ctx); err != nil || len(contents) != api.MaxContents {
		t.Errorf("the refused write changed the file: %d bytes, %v", len(contents), err)
	}
	for _, bad := range [][]string{
		{"cat", "a/b"}, {"cat", "/ls/local/../x"}, {"ls", "/ls/other"}, {"acquire", w.path("a"), "--lease", "1h", "--", "true"},
		{"acquire", w.path("a"), "--lock-delay", "2m", "--", "true"}, {"put", w.path("x")},
	} {
		if r := w.do(bad...); r.code == 0 || r.err == "" {
			t.Errorf("chubbyctl %v: exit %d, stderr %q", bad, r.code, r.err)
		}
	}
	if now := w.status(); now.Master == "" || len(now.Replicas) != 5 {
		t.Errorf("afterwards the cell has master %q and %d replicas", now.Master, len(now.Replicas))
	}
	if r := w.do("put", w.path("after"), "x"); r.code != 0 {
		t.Errorf("the cell does not serve any more: %s", r.err)
	}
}
