package master

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// The copyset has a reader before the reader looks at anything: otherwise a
// change between the two would not invalidate its cache.
func TestReaderIsKnownBeforeItLooks(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		author.open(t, "/ls/local/f", api.MayCreate)
		o := reader.open(t, "/ls/local/f", api.MustExist) // which holds the mutex for both
		m.locked(func() { m.tables.Copyset.Drop(reader.who.Session, tables.MaxCopies) })
		known := false // when it looked last
		m.looking.set(func() {
			if m.epoch.mu.mu.TryLock() { // else it looks to see whether it may read
				known = m.tables.Copyset.Names[reader.who.Session]["/f"] != nil
				m.epoch.mu.mu.Unlock()
			}
		})
		_, cacheable, err := m.Files.ReadToCache(t.Context(), o.Handle, namespace.ToRead)
		m.looking.clear()
		if err != nil || !cacheable || !known {
			t.Errorf("a reader that may keep what it is told (%v) looked before it was in the copyset: %v", cacheable, err)
		}
	})
}

// A read that is refused enters nobody: what no reader is told, none has in a cache.
func TestRefusedReaderIsNotEntered(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		author.open(t, "/ls/local/f", api.MayCreate)
		h := reader.open(t, "/ls/local/f", api.MustExist).Handle
		m.locked(func() { m.tables.Copyset.Drop(reader.who.Session, tables.MaxCopies) })
		h.Rights = namespace.ToWrite
		if _, _, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); !errors.Is(err, api.PermissionDenied) {
			t.Errorf("a handle that was not opened to read reads: %v", err)
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if known := m.tables.Copyset.Names[reader.who.Session]; len(known) > 0 {
			t.Errorf("it may have in its cache: %v", known)
		}
	})
}

// Chubby §2.7: a change waits until a caching client has acknowledged the invalidation. Sending it is not enough, nor,
// for the next change, that an earlier one has waited and has given up.
func TestChangeWaitsForAcknowledgement(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		ctx, cancel := context.WithCancel(t.Context())
		first := author.write(ctx, f)
		stopIf(t, !stillWaits(first), "it did not wait")
		time.Sleep(time.Second)
		cancel()
		mustFail(t, <-first, api.Unavailable)
		second := author.write(t.Context(), f)
		events := reader.hear(t)
		if len(events) != 1 || events[0].Kind != api.EventCacheInvalidation || events[0].Path != "/ls/local/f" {
			t.Fatalf("%v", events)
		}
		stopIf(t, !stillWaits(second), "it did not wait, because another change had")
		if again := reader.hear(t); len(again) != 1 || !stillWaits(second) {
			t.Fatalf("told %d again; it was not acknowledged", len(again))
		}
		reader.acknowledge(t, events)
		stopIf(t, stillWaits(second), "it still waits")
	})
}

// A refused request stays refused, although an earlier copy of it waits and
// could be done by now: its client has got the refusal.
func TestRefusalIsForGood(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader, locker := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		lock := locker.open(t, "/ls/local/f", api.MustExist).Handle
		mutation := author.mutation()
		remove := func() <-chan error {
			return later(func() error { return author.remove(t.Context(), mutation, f) })
		}
		first := remove()
		stopIf(t, !stillWaits(first), "it did not wait")
		granted := locker.try(t, lock, api.Exclusive)
		mustFail(t, <-remove(), api.LockHeld, "delete of a node whose lock another holds")
		noErr(t, m.Locks.Release(t.Context(), locker.mutation(), lock, granted.Generation))
		for _, c := range []*soloClient{reader, locker} {
			c.acknowledge(t, c.hear(t))
		}
		fails(t, <-first, api.LockHeld, "the copy that waited")
		if _, there := m.epoch.state().Tree.Get("/f"); !there {
			t.Error("it was done after it had been refused")
		}
	})
}

// A node is uncacheable until its change has been applied, even if the author has given up meanwhile.
func TestUncacheableUntilApplied(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		h := reader.open(t, "/ls/local/f", api.MustExist).Handle
		m.locked(func() { m.tables.Copyset.Drop(reader.who.Session, tables.MaxCopies) })
		entered, leave := m.holdNextEntry()
		ctx, cancel := context.WithCancel(t.Context())
		done := author.write(ctx, f)
		<-entered
		cancel()
		mustFail(t, <-done, api.Uncertain)
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || cacheable {
			t.Errorf("cacheable %v while a change is on its way: %v", cacheable, err)
		}
		close(leave)
		synctest.Wait()
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || !cacheable {
			t.Errorf("cacheable %v after the change: %v", cacheable, err)
		}
	})
}

// Chubby §2.9, steps 5 and 6: after a fail-over a change waits until every
// session that may cache has acknowledged it; decision 12: nothing else waits.
func TestChangeWaitsForFlush(t *testing.T) {
	var before *soloClient
	inSolo(t, func(s *raftfsm.State) { before = early(t, s, cachingSession(9)) }, func(t *testing.T, m *soloMaster) {
		before.m = m
		author := m.client(t, 1)
		q := author.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate})
		created := later(func() error { return errOf(m.Files.Open(t.Context(), q)) })
		events := before.hear(t)
		stopIf(t, len(events) != 1 || events[0].Kind != api.EventMasterFailedOver, "%v", events)
		stopIf(t, !stillWaits(created), "a change did not wait")
		author.open(t, "/ls/local/acl/everyone", api.MustExist) // no change
		before.acknowledge(t, events)
		stopIf(t, stillWaits(created), "it still waits")
	})
}

// A session that has asked for more names than it may cache continues to cache: the master tells it
// to drop those that it asked for least recently, and what the master remembers stays below a bound
// in bytes. Names that it asks for again and again stay.
func TestFullCacheMakesRoom(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		reader := m.client(t, 1)
		id := reader.who.Session
		const most = 8<<20 + 512<<10 // bytes, before one copy
		refused, hot := 0, 0
		for i := range 60_000 {
			if !m.coherence.registerReader(id, api.Name(fmt.Sprintf("/absent-%s-%d", strings.Repeat("x", 50), i))) {
				refused++
			}
			if i%100 == 0 && m.coherence.registerReader(id, "/hot") {
				hot++
			}
			m.epoch.mu.Lock()
			bytes, waits := m.tables.Copyset.Bytes[id], len(m.tables.Boxes.ByID[id].Events) > 0
			m.epoch.mu.Unlock()
			if bytes > most+512+api.MaxPath {
				t.Fatalf("after %d names its copies take %d bytes; the bound is %d", i, bytes, most)
			}
			if waits && i%500 == 0 { // the client is slow
				for events := reader.hear(t); len(events) > 0; events = reader.hear(t) {
					reader.acked = events[len(events)-1].Sequence
					synctest.Wait()
					if m.caughtUp(reader) {
						break
					}
				}
			}
		}
		if refused > 600 || hot < 590 {
			t.Errorf("%d of 60000 names could not be cached; the name in constant use was cached %d of 600 times", refused, hot)
		}
		for i := range 20_000 { // it no longer answers
			m.coherence.registerReader(id, api.Name(fmt.Sprintf("/more-%d", i)))
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if bytes := m.tables.Copyset.Bytes[id]; bytes > most+512+api.MaxPath {
			t.Errorf("the copies of a client that drops nothing take %d bytes; the bound is %d", bytes, most)
		}
		if n := m.tables.Copyset.Used.Of["p"]; n != m.tables.Copyset.Bytes[id] {
			t.Errorf("%d bytes are counted for the principal, %d for its session", n, m.tables.Copyset.Bytes[id])
		}
		if m.tables.Copyset.Drop(id, tables.MaxCopies); len(m.tables.Copyset.Used.Of)+len(m.tables.Copyset.Bytes)+len(m.tables.Copyset.Order)+len(m.tables.Copyset.Copies) != 0 {
			t.Error("something is kept of a session that has ended")
		}
	})
}

// caughtUp acknowledges what the client received, and reports whether nothing else waits.
func (s *soloMaster) caughtUp(c *soloClient) bool {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box := s.tables.Boxes.ByID[c.who.Session]
	box.Acknowledge(c.acked, c.acked)
	s.tables.Copyset.Acknowledge(c.who.Session, box.Received, tables.MaxCopies)
	return len(box.Events) == 0
}

// The master does not keep copies of names that a session has created and deleted.
func TestOwnDeletionIsForgotten(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		for i := range 100 {
			h := c.open(t, fmt.Sprintf("/ls/local/item-%d", i), api.MayCreate).Handle
			noErr(t, c.remove(t.Context(), c.mutation(), h))
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if n := len(m.tables.Copyset.Names[c.who.Session]); n > 5 {
			t.Errorf("%d names are kept of 100 files that it has deleted", n)
		}
	})
}

// A change waits long enough for a client with the longest lease that gets the
// invalidation at the last moment and never drops its cache.
func TestChangeOutwaitsTheLongestLease(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.clientOf(t, 2, func(c *raftfsm.CreateSession) { c.Lease = api.MaxLease })
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		alive, stop := context.WithCancel(t.Context())
		defer stop()
		go author.keep(alive)
		began := time.Now()
		done := later(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), MaxChangeWait)
			defer cancel()
			return <-author.write(ctx, f)
		})
		time.Sleep(api.MaxLease - time.Second)
		if len(reader.hear(t)) != 1 { // it is not acknowledged
			t.Error("it was told nothing")
		}
		if err := <-done; err != nil || time.Since(began) < api.MaxLease {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
