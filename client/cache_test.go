package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
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
		{"an invalidation", func(c *cache) { c.invalidate(cachedName) }, false},
		{"an invalidation of another name", func(c *cache) { c.invalidate("/y") }, true},
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
		if _, _, is := c.contentsOf(0, cachedName, 1); (is == foundUsable) != test.kept {
			t.Errorf("%s: found %v", test.name, is)
		}
	}
}

// What another master has told is not kept: the present one does not know that it
// was.
func TestKeepOfAnotherEpoch(t *testing.T) {
	for _, epoch := range []api.Epoch{3, 5} {
		c := newCache(1<<20, 4)
		if keepText(c, c.beginFetch(cachedName), epoch, "a") {
			t.Errorf("what the master of epoch %d told was kept in epoch 4", epoch)
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
		if _, _, is := c.contentsOf(0, cachedName, 1); is == foundUsable {
			t.Error("found while a change is under way")
		}
		c.endChange(names, did)
		if _, _, is := c.contentsOf(0, cachedName, 1); (is == foundUsable) != found {
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
		if _, _, is := c.contentsOf(0, "/a", 1); is != foundUsable {
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
		{"an invalidation", func(c *cache) { c.invalidate(cachedName) }, key, false},
		{"a change of an access control list", func(c *cache) { c.invalidate(api.ACLDir) }, key, false},
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
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable = true
		c := f.client(f.config())
		h := watching(t, c)
		for range 3 {
			if _, err := h.Stat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(f.heard("GetStat")); n != 1 {
			t.Fatalf("%d calls for three looks", n)
		}
		f.cut(addresses()...)
		time.Sleep(c.Left() - time.Millisecond)
		if _, err := h.Stat(t.Context()); err != nil {
			t.Errorf("while the lease runs: %v", err)
		}
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Stat(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in jeopardy: %v", err)
		}
		f.heal()
		time.Sleep(5 * time.Second)
		before := len(f.heard("GetStat"))
		if _, err := h.Stat(t.Context()); err != nil || len(f.heard("GetStat")) != before+1 || c.Stats().Cache.Flushes == 0 {
			t.Errorf("safe again: %v, %d calls, %d before", err, len(f.heard("GetStat")), before)
		}
		closeClient(t, c)
	})
}

// Chubby §2.7: what the cell says is to be dropped is dropped before that is
// acknowledged; so is everything, at a fail-over.
func TestDroppedBeforeAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cacheable = true
		c := f.client(f.config())
		h := watching(t, c)
		look := func(calls int) {
			t.Helper()
			if _, err := h.Stat(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := len(f.heard("GetStat")); n != calls {
				t.Errorf("%d calls, want %d", n, calls)
			}
		}
		look(1)
		look(1)
		s := f.only()
		f.mu.Lock()
		s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CACHE_INVALIDATION, Path: "/ls/foo/x"})
		f.mu.Unlock()
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
		closeClient(t, c)
	})
}
