package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A write that was done, whose answer was lost, and whose repetition is refused,
// has changed the node all the same: what was cached before is not shown again.
func TestRefusedAfterDone(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cacheable = true
		h := opened(t, c, "/ls/foo/x", OpenOptions{Read: true, Write: true})
		before := ok(h.Stat(t.Context()))(t)
		f.inTurn("SetContents", lose, fail(api.Errorf(api.BadSequencer, "released meanwhile")))
		if _, err := h.SetContents(t.Context(), []byte("new")); !errors.Is(err, api.Uncertain) { // not BadSequencer, which would mean that it was not done
			t.Errorf("SetContents: %v", err)
		}
		if after, err := h.Stat(t.Context()); err != nil || after.Content == before.Content {
			t.Errorf("after the write: %v, generation %d as before", err, after.Content)
		}
	})
}

// reuse opens and closes a file, and opens and closes it again.
func reuse(t *testing.T, f *fake) *Client {
	t.Helper()
	f.cacheable, f.reusable = true, true
	c := f.client(f.config())
	for range 2 {
		h := opened(t, c, "/ls/foo/x", OpenOptions{Read: true})
		must(t, h.Close(t.Context()))
	}
	if opens, closes := len(f.heard("Open")), len(f.heard("CloseHandle")); opens != 1 || closes != 0 || c.cache.idleCount != 1 || f.state().handles != 1 {
		t.Fatalf("%d Opens and %d Closes, %d handles kept, %d open", opens, closes, c.cache.idleCount, f.state().handles)
	}
	return c
}

// Handles that were kept are closed at the cell when they will not be used again:
// of jeopardy, and of events that are missing, the master knows nothing. A new
// master knows nothing of them.
func TestSpareHandlesAreClosed(t *testing.T) {
	for _, test := range []struct {
		name   string
		happen func(f *fake)
		closes int
	}{
		{"jeopardy", func(f *fake) {
			f.cut(addresses()...)
			time.Sleep(20 * time.Second)
			f.heal()
		}, 1},
		{"missing events", func(f *fake) { f.post(f.only(), chubbypb.EventKind_EVENT_KIND_LOST) }, 1},
		{"an invalidation", func(f *fake) {
			s := f.only()
			f.mu.Lock()
			defer f.mu.Unlock()
			s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CACHE_INVALIDATION, Path: "/ls/foo/x"})
		}, 1},
		{"a fail-over", func(f *fake) { f.elect("b:1") }, 0},
		{"a fail-over in jeopardy", func(f *fake) {
			f.cut(addresses()...)
			time.Sleep(20 * time.Second)
			f.elect("b:1")
			f.heal()
		}, 0},
	} {
		inBubble(t, func(t *testing.T, f *fake) {
			c := reuse(t, f)
			test.happen(f)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if n := len(f.heard("CloseHandle")); n != test.closes || c.cache.idleCount != 0 {
				t.Errorf("%s: %d Closes, want %d; %d handles kept", test.name, n, test.closes, c.cache.idleCount)
			}
		})
	}
}

// A handle that is closed leaves the table to the one that has taken its place at
// the cell meanwhile: else nobody would be told that its lock is taken away.
func TestHandleTakesPlace(t *testing.T) {
	table := newHandleTable()
	closed, open := &Handle{id: 7}, &Handle{id: 7}
	table.put(closed)
	table.put(open)
	if table.remove(closed); table.get(7) != open {
		t.Error("the handle that is open was removed")
	}
	if table.remove(open); table.get(7) != nil {
		t.Error("the handle was not removed")
	}
}

// A listing is that of one instance of a directory, whatever else is known of it.
func TestListingOfAnotherInstance(t *testing.T) {
	c := newCache(1<<20, 4)
	c.store(c.beginFetch("/d"), 4, func(e *entry) { e.children, e.listedInstance = []api.Stat{{Instance: 9}}, 2 })
	if _, is := c.read(0, "/d", 1, wantChildren); is != foundNothing {
		t.Error("a handle on the directory that was deleted lists the one created since")
	}
	if _, is := c.read(0, "/d", 2, wantChildren); is != foundUsable {
		t.Error("not kept")
	}
}

// Where a node is known to be absent nothing else is known of it.
func TestAbsentAfterAll(t *testing.T) {
	c := &Client{cache: newCache(1<<20, 4)}
	keepText(c.cache, c.cache.beginFetch(cachedName), 4, "a")
	c.cache.storeAbsence(c.cache.beginFetch(cachedName), 4, &api.Error{Code: api.NotFound, Cacheable: true})
	_, contents := c.cache.read(0, cachedName, 1, wantContents)
	if _, absent := c.cache.absentErrorOf(0, cachedName); contents != foundNothing || absent != foundUsable {
		t.Error("contents of a node that is absent")
	}
}

// While this client is changing an access control list itself, no handle is used
// again: the change may have been made, and the Open be refused.
func TestIdleHandlesWhileRightsChange(t *testing.T) {
	c, key := newCache(1<<20, 4), openKey{read: true}
	names := []api.Name{api.ACLDir + "/staff", api.ACLDir}
	c.beginChange(names, nil)
	f := c.beginFetch(cachedName)
	e := c.store(f, 4, func(e *entry) { e.stat = &api.Stat{Instance: 1} })
	if !c.park(e, key, idleHandle{token: []byte("t"), rightsChanges: f.rightsChanges, epoch: 4}) {
		t.Fatal("not kept")
	}
	if _, idle, _ := c.takeIdle(0, cachedName, key); idle != nil {
		t.Error("used during the change")
	}
	c.endChange(names, effectContents)
	closed := 0
	c.discard = func(idleHandle) { closed++ }
	if _, idle, _ := c.takeIdle(0, cachedName, key); idle != nil || closed != 1 {
		t.Errorf("used after the change: %v, %d were closed", idle != nil, closed)
	}
}

// The room that is counted is that of what is there.
func TestCacheWeight(t *testing.T) {
	c := newCache(1<<20, 4)
	keepText(c, c.beginFetch(cachedName), 4, "0123456789")
	c.beginChange([]api.Name{cachedName}, nil)
	c.endChange([]api.Name{cachedName}, effectContents)
	if s := c.currentStats(); s.Entries != 1 || s.Bytes != entryBytes {
		t.Errorf("%+v", s)
	}
}

// Metadata shows the cell's own name, by whatever name the node was opened.
func TestCachedPath(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.reusable = true
		h := opened(t, c, "/ls/local/x", OpenOptions{Read: true})
		if stat, err := h.Stat(t.Context()); err != nil || stat.Path.String() != "/ls/foo/x" || len(f.heard("GetStat")) != 0 {
			t.Errorf("%v, %v", stat.Path, err)
		}
	})
}

// A handle that is more at the cell than open is not kept for another Open when it
// is closed: one through which a lock was asked for (Chubby §2.7), one that is bound
// to a lock, and one on which a call is under way. What had begun would go on, and
// the next owner of the handle would be told what came of it.
func TestHandleInUseIsNotKept(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(t *testing.T, h *Handle)
		closes int
	}{
		{"it was only open", func(*testing.T, *Handle) {}, 0},
		{"a lock was held through it", func(t *testing.T, h *Handle) {
			l := acquired(t, h)
			must(t, l.Release(t.Context()))
		}, 1},
		{"it is bound", func(_ *testing.T, h *Handle) { h.boundToken = h.token }, 1},
		{"a call is under way", func(t *testing.T, h *Handle) {
			_, leave, err := h.beginCall(t.Context(), "acquire")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(leave)
		}, 1},
	} {
		runInSession(t, test.name, func(t *testing.T, f *fake, c *Client) {
			f.cacheable, f.reusable = true, true
			h := opened(t, c, "/ls/foo/x", OpenOptions{Write: true})
			test.before(t, h)
			must(t, h.Close(t.Context()))
			if n := len(f.heard("CloseHandle")); n != test.closes {
				t.Errorf("%d calls of Close, want %d", n, test.closes)
			}
		})
	}
}

// After Close no call on the handle begins, also if it was called before.
func TestNoCallAfterClose(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cacheable, f.reusable = true, true
		h := opened(t, c, "/ls/foo/x", OpenOptions{Write: true})
		f.on("Acquire", hang)
		waiting, giveUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := h.Acquire(waiting, api.Exclusive)
			done <- err
		}()
		synctest.Wait()
		if err := h.Close(t.Context()); err != nil || len(f.heard("CloseHandle")) != 1 {
			t.Errorf("Close while Acquire waits: %v, %d calls", err, len(f.heard("CloseHandle")))
		}
		giveUp()
		<-done
		if _, err := h.Acquire(t.Context(), api.Exclusive); !errors.Is(err, api.HandleClosed) || len(f.heard("Acquire")) != 1 {
			t.Errorf("Acquire after Close: %v, %d calls", err, len(f.heard("Acquire")))
		}
	})
}

// Handles that were kept are closed when the quota of handles is used up, and the Open is
// made again: once, since the quota may be used up without them.
func TestSparesMakeRoomInTheQuota(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := reuse(t, f)
		f.when(func(s seen) bool { return s.method == "Open" && f.state().handles > 0 }, fail(api.Errorf(api.QuotaExceeded, "too many handles")))
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true})
		if err != nil || len(f.heard("CloseHandle")) != 1 {
			t.Errorf("%v; %d handles were closed", err, len(f.heard("CloseHandle")))
		}
		before := len(f.heard("Open"))
		if _, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true}); !errors.Is(err, api.QuotaExceeded) || len(f.heard("Open")) != before+1 {
			t.Errorf("without spares: %v after %d attempts", err, len(f.heard("Open"))-before)
		}
		noError(t, h.Close(t.Context()))
	})
}

// The lock is not held, and the function of Do was not called, also if an answer to the Open was lost, and a later attempt was
// refused while the caller still waits: that is not the Uncertain of a release.
func TestDoThatDoesNotOpenIsNotUncertain(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.inTurn("Open", lose, fail(api.Errorf(api.QuotaExceeded, "too many handles")), nil)
		called := false
		err := c.Do(t.Context(), "/ls/foo/x", func(context.Context, *Lock) error { called = true; return nil })
		if called || api.CodeOf(err) != api.Unavailable || errors.Is(err, api.Uncertain) {
			t.Errorf("called %t, %v", called, err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := f.state().handles; n != 0 {
			t.Errorf("%d handles are open at the cell", n)
		}
	})
}
