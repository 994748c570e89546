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

// Decision 12: when the master dies together with a quarter of the clients, which may all have had
// something in their caches, locks and reads go on within two seconds. Only changes wait, until the
// cache leases of the dead clients have run out (decision 23).
func TestMasterKilledWithCaches(t *testing.T) {
	alive, dead, children, lease, times := 15, 5, 1, 4*time.Second, 1
	if *full {
		alive, dead, children, lease, times = 150, 50, 5, api.DefaultLease, 3
	}
	w := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(times)*(lease+patience(time.Minute)))
	defer cancel()
	s := w.newShelf(ctx, "/ls/local/shelf", 10, client.Config{})
	var survivors []*survivor
	for i := range alive {
		survivors = append(survivors, w.survivor(ctx, s, i))
	}
	for round := range times {
		w.killTogether(ctx, s, survivors, task{Do: "holdCaches", Clients: dead / children, Files: s.paths(), Lease: lease}, children, round)
	}
}

// paths returns the paths of the files.
func (s *shelf) paths() []string {
	var all []string
	for _, r := range s.files {
		all = append(all, r.path)
	}
	return all
}

// survivor is a client that is not killed, with a lock file of its own and a file that it has not
// read.
type survivor struct {
	*client.Client
	cached       []*client.Handle
	lock, unread *client.Handle
}

func (w *world) survivor(ctx context.Context, s *shelf, i int) *survivor {
	c := &survivor{Client: w.client(client.Config{})}
	for _, path := range s.paths() {
		h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
		if err != nil {
			w.t.Fatal(err)
		}
		c.cached = append(c.cached, h)
	}
	c.lock = w.handle(ctx, c.Client, fmt.Sprintf("/ls/local/lock-%d", i))
	c.unread = w.handle(ctx, w.client(client.Config{NoCache: true}), fmt.Sprintf("/ls/local/unread-%d", i))
	return c
}

// killTogether kills the master and children that cache, at once, and measures how long the calls of
// others wait.
func (w *world) killTogether(ctx context.Context, s *shelf, survivors []*survivor, k task, children, round int) {
	t := w.t
	var dying []child
	for range children {
		dying = append(dying, w.child(t, k))
	}
	for _, c := range dying {
		c.waitNote("ready", 0, 30*time.Second)
	}
	for _, c := range survivors {
		for _, h := range c.cached {
			if _, _, err := h.Contents(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	master := w.replicas()[w.status().Master].PID
	began := time.Now()
	w.kill9(master)
	for _, c := range dying {
		w.kill9(c.cmd.Process.Pid)
	}

	var calls sync.WaitGroup
	locked, read, wrote := timed{began: began}, timed{began: began}, timed{began: began}
	for _, c := range survivors {
		calls.Go(func() {
			l, err := c.lock.Acquire(ctx, api.Exclusive)
			if err == nil {
				err = l.Release(ctx)
			}
			locked.over(t, err)
		})
		calls.Go(func() {
			_, _, err := c.unread.Contents(ctx)
			read.over(t, err)
		})
	}
	for i, h := range s.handles {
		calls.Go(func() {
			n := s.files[i].writes.Add(2)
			_, err := h.SetContents(ctx, fmt.Append(nil, n))
			wrote.over(t, err)
		})
	}
	calls.Wait()
	t.Logf("round %d: %d sessions killed with the master, lease %v; after that: locks %v, reads %v, changes %v",
		round, children*k.Clients, k.Lease, &locked, &read, &wrote)
	if most := patience(2 * time.Second); locked.slowest() > most || read.slowest() > most {
		t.Errorf("locks waited up to %v and reads up to %v, want at most %v", locked.slowest(), read.slowest(), most)
	}
	// The new master knows nothing of what was cached, and waits for a whole cache lease from when it
	// took over, about when it answered the first read.
	least, most := api.CacheLease, patience(read.fastest()+api.CacheLease+time.Second)
	if wrote.fastest() < least || wrote.slowest() > most {
		t.Errorf("changes took from %v to %v, want %v to %v", wrote.fastest(), wrote.slowest(), least, most)
	}
	for _, c := range survivors {
		intact(t, c.Client)
		for i, h := range c.cached {
			got, _, err := h.Contents(ctx)
			if err == nil {
				_, err = s.files[i].check(s.files[i].writes.Load(), got)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	w.waitHealthy(5)
}

// timed collects the durations of calls that began together.
type timed struct {
	began time.Time
	mu    sync.Mutex // guards took
	took  []time.Duration
}

// over takes note that a call has ended.
func (d *timed) over(t *testing.T, err error) {
	took := time.Since(d.began)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.took = append(d.took, took); err != nil {
		t.Error(err)
	}
}

func (d *timed) fastest() time.Duration { return slices.Min(d.took) }
func (d *timed) slowest() time.Duration { return slices.Max(d.took) }

// String summarises the durations.
func (d *timed) String() string {
	slices.Sort(d.took)
	return fmt.Sprintf("%v (median), %v (slowest)", d.took[len(d.took)/2].Round(time.Millisecond), d.slowest().Round(time.Millisecond))
}
