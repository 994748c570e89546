package master

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
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
		m.epoch.mu.Lock()
		m.tables.copyset.drop(reader.who.Session, maxCopies)
		m.epoch.mu.Unlock()
		known := false // when it looked last
		m.looking = func() {
			if m.epoch.mu.mu.TryLock() { // else it looks to see whether it may read
				known = m.tables.copyset.names[reader.who.Session]["/f"] != nil
				m.epoch.mu.mu.Unlock()
			}
		}
		_, cacheable, err := m.Files.ReadToCache(t.Context(), o.Handle, namespace.ToRead)
		m.looking = nil
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
		m.epoch.mu.Lock()
		m.tables.copyset.drop(reader.who.Session, maxCopies)
		m.epoch.mu.Unlock()
		h.Rights = namespace.ToWrite
		if _, _, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); !errors.Is(err, api.PermissionDenied) {
			t.Errorf("a handle that was not opened to read reads: %v", err)
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if known := m.tables.copyset.names[reader.who.Session]; len(known) > 0 {
			t.Errorf("it may have in its cache: %v", known)
		}
	})
}

// Chubby §2.7: a change waits until a caching client has acknowledged the
// invalidation. Sending it is not enough, nor, for the next change, that an
// earlier one has waited and has given up.
func TestChangeWaitsForAcknowledgement(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		ctx, cancel := context.WithCancel(t.Context())
		first := author.write(ctx, f)
		if !stillWaits(first) {
			t.Fatal("it did not wait")
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-first; !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		second := author.write(t.Context(), f)
		events := reader.hear(t)
		if len(events) != 1 || events[0].Kind != api.EventCacheInvalidation || events[0].Path != "/ls/local/f" {
			t.Fatalf("%v", events)
		}
		if !stillWaits(second) {
			t.Fatal("it did not wait, because another change had")
		}
		if again := reader.hear(t); len(again) != 1 || !stillWaits(second) {
			t.Fatalf("told %d again; it was not acknowledged", len(again))
		}
		reader.acknowledge(t, events)
		if stillWaits(second) {
			t.Fatal("it still waits")
		}
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
			done := make(chan error, 1)
			go func() {
				_, err := m.Files.Change(t.Context(), f, namespace.ToWrite, mutation, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: mutation, Node: f.Node, Handle: f.Owner.Handle}})
				done <- err
			}()
			return done
		}
		first := remove()
		if !stillWaits(first) {
			t.Fatal("it did not wait")
		}
		claim := raftfsm.Claim{Mutation: locker.mutation(), Handle: lock.Owner.Handle, Mode: api.Exclusive}
		granted, err := m.Locks.TryAcquire(t.Context(), requestFor(claim, lock))
		if err != nil {
			t.Fatal(err)
		}
		if err := <-remove(); !errors.Is(err, api.LockHeld) {
			t.Fatalf("delete of a node whose lock another holds: %v", err)
		}
		if err := m.Locks.Release(t.Context(), locker.mutation(), lock, granted.Generation); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*soloClient{reader, locker} {
			c.acknowledge(t, c.hear(t))
		}
		if err := <-first; !errors.Is(err, api.LockHeld) {
			t.Errorf("the copy that waited: %v", err)
		}
		if _, there := m.epoch.state().Tree.Get("/f"); !there {
			t.Error("it was done after it had been refused")
		}
	})
}

// A node is uncacheable until its change has been applied, even if the author
// has given up meanwhile.
func TestUncacheableUntilApplied(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		h := reader.open(t, "/ls/local/f", api.MustExist).Handle
		m.epoch.mu.Lock()
		m.tables.copyset.drop(reader.who.Session, maxCopies)
		m.epoch.mu.Unlock()
		entered, leave := make(chan struct{}), make(chan struct{})
		m.applying = func() {
			m.applying = nil
			close(entered)
			<-leave
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := author.write(ctx, f)
		<-entered
		cancel()
		if err := <-done; !errors.Is(err, api.Uncertain) {
			t.Fatal(err)
		}
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
	var old api.SessionID
	inSolo(t, func(s *raftfsm.State) { old = with(t, s, cachingSession(9))[0].Session }, func(t *testing.T, m *soloMaster) {
		before := &soloClient{m: m, who: Caller{Session: old, Epoch: 1}}
		author := m.client(t, 1)
		mutation := author.mutation()
		created := make(chan error, 1)
		go func() {
			_, err := m.Files.Open(t.Context(), OpenRequest{
				Mutation: mutation, Path: api.MustParsePath("/ls/local/f"),
				Handle: Handle{Owner: namespace.Owner{Session: author.who.Session, Handle: 1}, Rights: namespace.ToWrite},
				Create: raftfsm.Open{Create: api.MayCreate, Kind: api.File, Rights: namespace.ToWrite},
			})
			created <- err
		}()
		events := before.hear(t)
		if len(events) != 1 || events[0].Kind != api.EventMasterFailedOver {
			t.Fatalf("%v", events)
		}
		if !stillWaits(created) {
			t.Fatal("a change did not wait")
		}
		author.open(t, "/ls/local/acl/everyone", api.MustExist) // no change
		before.acknowledge(t, events)
		if stillWaits(created) {
			t.Fatal("it still waits")
		}
	})
}

// The end of an ephemeral file is a change like any other (decision 11).
func TestEphemeralDeathWaitsForCaches(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		owner, reader := m.client(t, 1), m.client(t, 2)
		mutation := owner.mutation()
		o, err := m.Files.Open(t.Context(), OpenRequest{
			Mutation: mutation, Path: api.MustParsePath("/ls/local/e"),
			Handle: Handle{Owner: namespace.Owner{Session: owner.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: namespace.ToRead},
			Create: raftfsm.Open{Create: api.MayCreate, Kind: api.File, Ephemeral: true, Rights: namespace.ToRead},
		})
		if err != nil {
			t.Fatal(err)
		}
		reader.open(t, "/ls/local/acl/everyone", api.MustExist)
		m.coherence.registerReader(reader.who.Session, "/e", "")
		if err := m.Files.Close(t.Context(), owner.mutation(), o.Handle); err != nil {
			t.Fatal(err)
		}
		events := reader.hear(t)
		synctest.Wait()
		if _, there := m.epoch.state().Tree.Get("/e"); !there || len(events) != 2 {
			t.Fatalf("there %v, told %v", there, events)
		}
		reader.acknowledge(t, events)
		if _, there := m.epoch.state().Tree.Get("/e"); there {
			t.Error("it is still there")
		}
	})
}
