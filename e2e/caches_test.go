package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// full makes the tests of caches as large and as long as the promises say; make acceptance sets
// it. span and pauses are for examining one of them.
var (
	full   = flag.Bool("full", false, "make the trials of caches and pauses as large and as long as the promises say")
	span   = flag.Duration("span", 0, "how long masters are killed under caching clients; 0 is 7s, or 5m with -full")
	pauses = flag.Int("pauses", 0, "how often the master is stopped for a while; 0 is once, or 20 times with -full")
)

// Chubby §2.7, §2.9: while masters die, no client reads an old value from its cache, no session is lost, and no write
// waits longer than one lease. Each read is compared with the writes that were acknowledged before it began.
func TestCachesWhileMastersDie(t *testing.T) {
	clients, files, pace, length, every := 20, 100, 20*time.Millisecond, 7*time.Second, 2500*time.Millisecond
	if *full {
		clients, files, pace, length, every = 200, 1000, 100*time.Millisecond, 5*time.Minute, 7*time.Second
	}
	if *span > 0 {
		length = *span
	}
	w := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), length+2*time.Minute)
	defer cancel()
	s := w.newShelf(ctx, "/ls/local/shelf", files, client.Config{})
	var readers []*client.Client
	for range clients {
		readers = append(readers, w.client(client.Config{}))
	}
	stop := make(chan struct{})
	kills := make(chan int, 1)
	var busy sync.WaitGroup
	for i, c := range readers {
		busy.Go(func() { s.newReader(c, i).run(ctx, pace, stop) })
	}
	busy.Go(func() { s.write(ctx, 100*time.Millisecond, stop) })
	busy.Go(func() { kills <- killEvery(t, w, every, stop) })
	time.Sleep(length)
	close(stop)
	busy.Wait()

	var sum client.CacheStats
	for _, c := range readers {
		one := c.Stats().Cache
		sum.Hits += one.Hits
		sum.Misses += one.Misses
		sum.Invalidations += one.Invalidations
	}
	killed := <-kills
	t.Logf("%d clients, %d files, %v: %s; %d answers from caches, %d asked for, %d invalidations; %d masters killed",
		clients, files, length, s.verdict(t), sum.Hits, sum.Misses, sum.Invalidations, killed)
	if killed == 0 || sum.Hits < 1000 || sum.Invalidations == 0 || s.writes.Load() == 0 || s.judged.Load() == 0 {
		t.Error("that is too little to have shown anything")
	}
	if slowest := time.Duration(s.slowest.Load()); slowest > patience(api.DefaultLease) {
		t.Errorf("a write took %v, longer than the lease of %v", slowest, api.DefaultLease)
	}
	intact(t, append(readers, s.author)...)
}

// holdCaches is a child's task: some clients that have files, or directories, in their caches and read them again
// and again.
func holdCaches(k task, over <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var handles []*client.Handle
	for range k.Clients {
		c, err := client.New(ctx, k.config())
		if err != nil {
			return err
		}
		for _, path := range k.Files {
			h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
			if err != nil {
				return err
			}
			handles = append(handles, h)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for round := 0; ; round++ {
		for _, h := range handles {
			if err := k.look(ctx, h); err != nil {
				return err
			}
		}
		if round == 0 {
			if err := json.NewEncoder(os.Stdout).Encode(note{What: "ready"}); err != nil {
				return err
			}
		}
		select {
		case <-over:
			return nil
		case <-tick.C:
		}
	}
}

// look reads a file, or lists a directory.
func (k task) look(ctx context.Context, h *client.Handle) (err error) {
	if k.Watch == "list" {
		_, err = h.ReadDir(ctx)
	} else {
		_, _, err = h.Contents(ctx)
	}
	return err
}

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

// survivor is a client that is not killed, with a lock file of its own and a file that it has not read.
type survivor struct {
	*client.Client
	cached       []*client.Handle
	lock, unread *client.Handle
}

func (w *world) survivor(ctx context.Context, s *shelf, i int) *survivor {
	c := &survivor{Client: w.client(client.Config{})}
	for _, path := range s.paths() {
		h := must(c.Open(ctx, path, client.OpenOptions{Read: true}))(w.t)
		c.cached = append(c.cached, h)
	}
	c.lock = w.handle(ctx, c.Client, fmt.Sprintf("/ls/local/lock-%d", i))
	c.unread = w.handle(ctx, w.client(client.Config{NoCache: true}), fmt.Sprintf("/ls/local/unread-%d", i))
	return c
}

// killTogether kills the master and children that cache, at once, and measures how long the calls of others wait.
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
			report(t, err)
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
