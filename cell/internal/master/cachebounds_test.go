package master

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// A session that has asked for more names than it may cache continues to cache: the master tells it
// to drop those that it asked for least recently, and what the master remembers stays below a bound
// in bytes. Names that it asks for again and again stay.
func TestFullCacheMakesRoom(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		reader := m.client(t, 1)
		id := reader.who.Session
		refused, hot := 0, 0
		for i := range 60_000 {
			if !m.coherence.registerReader(id, api.Name(fmt.Sprintf("/absent-%s-%d", strings.Repeat("x", 50), i))) {
				refused++
			}
			if i%100 == 0 && m.coherence.registerReader(id, "/hot") {
				hot++
			}
			m.epoch.mu.Lock()
			bytes, waits := m.tables.copyset.bytes[id], len(m.tables.boxes.byID[id].events) > 0
			m.epoch.mu.Unlock()
			if bytes > maxSessionCopiesUntold+copyBytes+api.MaxPath {
				t.Fatalf("after %d names its copies take %d bytes; the bound is %d", i, bytes, maxSessionCopiesUntold)
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
		if bytes := m.tables.copyset.bytes[id]; bytes > maxSessionCopiesUntold+copyBytes+api.MaxPath {
			t.Errorf("the copies of a client that drops nothing take %d bytes; the bound is %d", bytes, maxSessionCopiesUntold)
		}
		if n := m.tables.copyset.used.of["p"]; n != m.tables.copyset.bytes[id] {
			t.Errorf("%d bytes are counted for the principal, %d for its session", n, m.tables.copyset.bytes[id])
		}
		if m.tables.copyset.drop(id, maxCopies); len(m.tables.copyset.used.of)+len(m.tables.copyset.bytes)+len(m.tables.copyset.order)+len(m.tables.copyset.copies) != 0 {
			t.Error("something is kept of a session that has ended")
		}
	})
}

// caughtUp acknowledges what the client received, and reports whether nothing
// else waits.
func (s *soloMaster) caughtUp(c *soloClient) bool {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box := s.tables.boxes.byID[c.who.Session]
	box.acknowledge(c.acked, c.acked)
	s.tables.copyset.acknowledge(c.who.Session, box.received, maxCopies)
	return len(box.events) == 0
}

// The master does not keep copies of names that a session has created and
// deleted.
func TestOwnDeletionIsForgotten(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		for i := range 100 {
			h := c.open(t, fmt.Sprintf("/ls/local/item-%d", i), api.MayCreate).Handle
			mutation := c.mutation()
			if _, err := m.Files.Change(t.Context(), h, namespace.ToWrite, mutation, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: mutation, Node: h.Node, Handle: h.Owner.Handle}}); err != nil {
				t.Fatal(err)
			}
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if n := len(m.tables.copyset.names[c.who.Session]); n > 5 {
			t.Errorf("%d names are kept of 100 files that it has deleted", n)
		}
	})
}

// A change waits long enough for a client with the longest lease that gets the
// invalidation at the last moment and never drops its cache.
func TestChangeOutwaitsTheLongestLease(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, again := m.client(t, 1), cachingSession(2).CreateSession
		again.Lease = api.MaxLease
		id, grant, err := m.Sessions.Create(t.Context(), *again)
		if err != nil {
			t.Fatal(err)
		}
		reader := &soloClient{m: m, who: Caller{Session: id, Epoch: 1}, grant: grant.Number}
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		alive, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for alive.Err() == nil {
				author.acknowledgeAll(t)
			}
		}()
		began, done := time.Now(), make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), MaxChangeWait)
			defer cancel()
			done <- <-author.write(ctx, f)
		}()
		time.Sleep(api.MaxLease - time.Second)
		if len(reader.hear(t)) != 1 { // it is not acknowledged
			t.Error("it was told nothing")
		}
		if err := <-done; err != nil || time.Since(began) < api.MaxLease {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
