package e2e

import (
	"context"
	"flag"
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

// Chubby §2.7, §2.9: while masters die, no client reads an old value from its cache, no session
// is lost, and no write waits longer than one lease. Each read is compared with the writes that
// were acknowledged before it began.
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
