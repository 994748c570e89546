package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

const cachedName api.Name = "/x"

func keepText(c *cache, f *fetch, epoch api.Epoch, text string) bool {
	kept := c.store(f, epoch, func(e *entry) {
		e.stat, e.contents, e.hasContents = &api.Stat{Instance: 1}, []byte(text), true
	})
	return kept != nil
}

// What may be kept of a read, by what happened while it was under way.
func TestKeep(t *testing.T) {
	for _, test := range []struct {
		name  string
		while func(c *cache)
		kept  bool
	}{
		{"nothing", func(*cache) {}, true},
		{"the master of the read was deposed before", func(c *cache) { c.epoch = 5 }, false},
		{"the master of the read is the next, unheard of", func(c *cache) { c.epoch = 3 }, false},
		{"an invalidation", func(c *cache) { c.invalidate("/ls/foo" + string(cachedName)) }, false},
		{"an invalidation of another name", func(c *cache) { c.invalidate("/ls/foo/y") }, true},
		{"a fail-over", func(c *cache) { c.flush(5) }, false},
		{"jeopardy", func(c *cache) { c.flush(0) }, false},
		{"a change of one's own, begun", func(c *cache) { c.beginChange([]api.Name{cachedName}, nil) }, false},
		{"a change of one's own, done", func(c *cache) {
			c.beginChange([]api.Name{cachedName}, nil)
			c.endChange([]api.Name{cachedName}, effectContents)
		}, false},
	} {
		c := newCache(1<<20, 4)
		f := c.beginFetch(cachedName)
		test.while(c)
		if kept := keepText(c, f, 4, "a"); kept != test.kept {
			t.Errorf("%s: kept %v", test.name, kept)
		}
		c.endFetch(f)
		if _, is := c.read(0, cachedName, 1, wantContents); (is == foundUsable) != test.kept {
			t.Errorf("%s: found %v", test.name, is)
		}
	}
}

// While a change of this client's own is under way nothing is found, and what was
// there is found again if it turns out to be none.
func TestSuspend(t *testing.T) {
	names := []api.Name{cachedName}
	for did, found := range map[changeEffect]bool{effectNone: true, effectContents: false, effectAny: false} {
		c := newCache(1<<20, 4)
		f := c.beginFetch(cachedName)
		keepText(c, f, 4, "a")
		part := c.beginFetch(cachedName)
		c.beginChange(names, part)
		if _, is := c.read(0, cachedName, 1, wantContents); is == foundUsable {
			t.Error("found while a change is under way")
		}
		c.endChange(names, did)
		if _, is := c.read(0, cachedName, 1, wantContents); (is == foundUsable) != found {
			t.Errorf("after effect %d: found %v", did, is)
		}
		if kept := keepText(c, part, 4, "b"); kept != found {
			t.Errorf("after effect %d: what the change itself has read is kept: %v", did, kept)
		}
	}
}

// The cache stays below its limit, and what was used longest ago goes first.
func TestCacheLimit(t *testing.T) {
	c := newCache(10*(entryBytes+1000), 4)
	for i := range 20 {
		name := api.Name([]byte{'/', byte('a' + i)})
		f := c.beginFetch(name)
		keepText(c, f, 4, string(make([]byte, 1000)))
		c.endFetch(f)
		if _, is := c.read(0, "/a", 1, wantContents); is != foundUsable {
			t.Fatal("what is used all the time has gone")
		}
	}
	if s := c.currentStats(); s.Entries != 10 || s.Bytes > c.limit {
		t.Errorf("%+v", s)
	}
	c.flush(5)
	if s := c.currentStats(); s.Entries != 0 || s.Bytes != 0 || len(c.fetches) != 0 {
		t.Errorf("after a flush: %+v", s)
	}
}

// A handle is kept for an Open that asks for the same, as long as nothing says
// that the cell might refuse it.
func TestSpareHandles(t *testing.T) {
	key := openKey{read: true}
	for _, test := range []struct {
		name   string
		before func(c *cache)
		key    openKey
		taken  bool
	}{
		{"nothing", func(*cache) {}, key, true},
		{"other rights", func(*cache) {}, openKey{write: true}, false},
		{"an invalidation", func(c *cache) { c.invalidate("/ls/foo" + string(cachedName)) }, key, false},
		{"a change of an access control list", func(c *cache) { c.invalidate("/ls/foo" + string(api.ACLDir)) }, key, false},
		{"contents of one's own", func(c *cache) {
			c.beginChange([]api.Name{cachedName}, nil)
			c.endChange([]api.Name{cachedName}, effectContents)
		}, key, true},
	} {
		c := newCache(1<<20, 4)
		f := c.beginFetch(cachedName)
		e := c.store(f, 4, func(e *entry) { e.stat = &api.Stat{Instance: 1} })
		if !c.park(e, key, idleHandle{token: []byte("t"), rightsChanges: f.rightsChanges, epoch: 4}) {
			t.Fatal("not kept")
		}
		test.before(c)
		if _, idle, _ := c.takeIdle(0, cachedName, test.key); (idle != nil) != test.taken {
			t.Errorf("%s: taken %v", test.name, idle != nil)
		}
		if test.taken && c.idleCount != 0 {
			t.Errorf("%s: %d are kept", test.name, c.idleCount)
		}
	}
}

// Chubby §2.8: when the lease runs out by the local clock the cache is emptied,
// and not used: a cached read waits like any other, and asks when the session is
// safe again.
func TestJeopardyEmptiesTheCache(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cacheable = true
		h := watching(t, c)
		for range 3 {
			must(t, second(h.Stat(t.Context())))
		}
		if n := len(f.heard("GetStat")); n != 1 {
			t.Fatalf("%d calls for three looks", n)
		}
		f.cut(addresses()...)
		time.Sleep(c.Left() - time.Millisecond)
		wants(t, "while the lease runs", second(h.Stat(t.Context())), nil)
		time.Sleep(time.Millisecond)
		wants(t, "in jeopardy", second(h.Stat(bounded(t, time.Second))), context.DeadlineExceeded)
		f.heal()
		time.Sleep(5 * time.Second)
		before := len(f.heard("GetStat"))
		if _, err := h.Stat(t.Context()); err != nil || len(f.heard("GetStat")) != before+1 || c.Stats().Cache.Flushes == 0 {
			t.Errorf("safe again: %v, %d calls, %d before", err, len(f.heard("GetStat")), before)
		}
	})
}

// Chubby §2.7: what the cell says is to be dropped is dropped before that is
// acknowledged; so is everything, at a fail-over.
func TestDroppedBeforeAcknowledged(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cacheable = true
		h := watching(t, c)
		look := func(calls int) {
			t.Helper()
			must(t, second(h.Stat(t.Context())))
			if n := len(f.heard("GetStat")); n != calls {
				t.Errorf("%d calls, want %d", n, calls)
			}
		}
		look(1)
		look(1)
		s := f.only()
		f.locked(func() {
			s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CACHE_INVALIDATION, Path: "/ls/foo/x"})
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if acked := f.state().acked; acked != 1 {
			t.Errorf("acknowledged %d", acked)
		}
		look(2)
		look(2)
		if kinds := h.waiting(); slices.Contains(kinds, api.EventCacheInvalidation) {
			t.Errorf("the application was told: %v", kinds)
		}
	})
}

// cachingReader is a session with cache leases, and a handle through which it reads.
type cachingReader struct {
	*testing.T
	f    *fake
	c    *Client
	h    *Handle
	jump func(ahead time.Duration) // of its clock
}

// inCachingReader runs a test with one, of a cell that grants cache leases.
func inCachingReader(t *testing.T, test func(r *cachingReader)) {
	t.Helper()
	inBubble(t, func(t *testing.T, f *fake) {
		lease := api.CacheLease
		f.cacheable, f.cacheLease = true, &lease
		r := &cachingReader{T: t, f: f}
		cfg := f.config()
		r.jump = f.jumping(&cfg)
		r.c = f.client(cfg)
		r.h = watching(t, r.c)
		test(r)
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
		r.f.on("RenewCache", after(renewBefore/2)) // a slow network
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
		r.f.on("RenewCache", after(slow))
		r.look(1, 0)
		r.look(1, 1)
		r.f.on("RenewCache", hang)
		usable := time.Duration(float64(api.CacheLease)*(1-api.ClockRateBound)) - slow
		r.jump(usable - time.Millisecond)
		if _, err := r.h.Stat(r.Context()); err != nil || len(r.f.heard("GetStat")) != 1 {
			r.Errorf("while the lease runs: %v, %d reads", err, len(r.f.heard("GetStat")))
		}
		r.jump(usable)
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
	use := func() finding { _, is := c.read(100, cachedName, 1, wantContents); return is }
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
