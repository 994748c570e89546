package client

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// cachingReader is a session with cache leases, and a handle through which it reads.
type cachingReader struct {
	*testing.T
	f     *fake
	c     *Client
	h     *Handle
	ahead atomic.Int64 // nanoseconds by which its clock is ahead of the bubble's
}

// inCachingReader runs a test with one, of a cell that grants cache leases.
func inCachingReader(t *testing.T, test func(r *cachingReader)) {
	t.Helper()
	inBubble(t, func(t *testing.T, f *fake) {
		lease := api.CacheLease
		f.cacheable, f.cacheLease = true, &lease
		r := &cachingReader{T: t, f: f}
		cfg := f.config()
		clock := cfg.withDefaults().Clock
		cfg.Clock = func() session.Instant { return clock().Add(time.Duration(r.ahead.Load())) }
		r.c = f.client(cfg)
		r.h = watching(t, r.c)
		test(r)
		closeClient(t, r.c)
	})
}

// look reads, and checks how many reads and renewals the cell has been asked for in all.
func (r *cachingReader) look(reads, renewals int) {
	r.Helper()
	if _, err := r.h.Stat(r.Context()); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
	if got := []int{len(r.f.heard("GetStat")), len(r.f.heard("RenewCache"))}; got[0] != reads || got[1] != renewals {
		r.Errorf("%d reads and %d renewals reached the cell, want %d and %d", got[0], got[1], reads, renewals)
	}
}

// Decision 23: a cache lease is asked for when the cache could answer a call, and before that
// by nobody; one that lapsed takes a small message, and no read.
func TestCacheLeaseIsAskedForWhenOfUse(t *testing.T) {
	inCachingReader(t, func(r *cachingReader) {
		r.look(1, 0)
		time.Sleep(time.Minute)
		r.look(1, 1)
		time.Sleep(api.CacheLease / 2)
		r.look(1, 1)
		time.Sleep(time.Hour)
		if n := len(r.f.heard("RenewCache")); n != 1 {
			r.Errorf("an idle cache had its lease renewed %d times", n-1)
		}
		r.look(1, 2)
	})
}

// A cache in constant use has its lease renewed before that ends, about every 1.6 s, and no read
// waits for that.
func TestCacheLeaseIsRenewedInUse(t *testing.T) {
	inCachingReader(t, func(r *cachingReader) {
		const span = 100 * time.Second
		r.look(1, 0)
		r.look(1, 1)
		r.f.script(func(s seen) verb {
			if s.method == "RenewCache" {
				return after(renewBefore / 2) // a slow network
			}
			return nil
		})
		for range int(span / (10 * time.Millisecond)) {
			before := time.Now()
			if _, err := r.h.Stat(r.Context()); err != nil || !time.Now().Equal(before) {
				r.Fatalf("%v after %v", err, time.Since(before))
			}
			time.Sleep(10 * time.Millisecond)
		}
		r.f.script(nil)
		reads, renewals := len(r.f.heard("GetStat")), len(r.f.heard("RenewCache"))
		if fewest, most := int(span/api.CacheLease), int(span/(api.CacheLease-renewBefore))+2; reads != 1 || renewals < fewest || renewals > most {
			r.Errorf("%d reads and %d renewals in %v, want 1, and %d to %d", reads, renewals, span, fewest, most)
		}
	})
}

// The lease is counted by the client's clock, from before the request was sent, and rounded
// down by what clocks may differ by: a process that was stopped returns nothing from its cache
// when it goes on, though the lease of its session runs.
func TestCacheLeaseEndsByTheClock(t *testing.T) {
	inCachingReader(t, func(r *cachingReader) {
		const slow = 400 * time.Millisecond
		r.f.script(func(s seen) verb {
			if s.method == "RenewCache" {
				return after(slow)
			}
			return nil
		})
		r.look(1, 0)
		r.look(1, 1)
		r.f.script(func(s seen) verb {
			if s.method == "RenewCache" {
				return hang
			}
			return nil
		})
		usable := time.Duration(float64(api.CacheLease)*(1-api.ClockRateBound)) - slow
		r.ahead.Add(int64(usable - time.Millisecond))
		if _, err := r.h.Stat(r.Context()); err != nil || len(r.f.heard("GetStat")) != 1 {
			r.Errorf("while the lease runs: %v, %d reads", err, len(r.f.heard("GetStat")))
		}
		r.ahead.Add(int64(time.Millisecond))
		if _, err := r.h.Stat(r.Context()); err != nil || len(r.f.heard("GetStat")) != 2 {
			r.Errorf("when it is over: %v, %d reads", err, len(r.f.heard("GetStat")))
		}
		if state := r.c.State(); state != session.Safe {
			r.Errorf("the session is %v", state)
		}
	})
}

// While the cell grants no cache lease, reads go to the cell, and the cell is not asked for a lease
// each time.
func TestNoCacheLease(t *testing.T) {
	inCachingReader(t, func(r *cachingReader) {
		*r.f.cacheLease = 0
		const reads = 1000
		began := time.Now()
		for range reads {
			if _, err := r.h.Stat(r.Context()); err != nil {
				r.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		got, renewals := len(r.f.heard("GetStat")), len(r.f.heard("RenewCache"))
		if most := int(time.Since(began)/renewPause) + 1; got != reads || renewals > most {
			r.Errorf("%d of %d reads and %d renewals reached the cell, want at most %d", got, reads, renewals, most)
		}
	})
}

// A cache lease of one epoch is none in the next: what was cached under one master is used under no
// other's lease, also if that comes before the cache was emptied.
func TestCacheLeaseOfAnotherEpoch(t *testing.T) {
	c := newCache(1<<20, 4)
	c.lease.required = true
	keepText(c, c.beginFetch(cachedName), 4, "a")
	use := func() finding { _, _, is := c.contentsOf(100, cachedName, 1); return is }
	c.grantLease(5, 200)
	if is := use(); is != foundLapsed {
		t.Errorf("under a lease of the next master: %d", is)
	}
	c.grantLease(4, 200)
	if is := use(); is != foundUsable {
		t.Errorf("under a lease of its own master: %d", is)
	}
	c.flush(5)
	keepText(c, c.beginFetch(cachedName), 5, "b")
	if is := use(); is != foundLapsed {
		t.Errorf("under a lease of the master before: %d", is)
	}
}
