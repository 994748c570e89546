package master

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
)

// A client asks again and again for the end of its session while the log accepts nothing. The
// master remembers that once, and ends the session when it can.
func TestEndIsRememberedOnce(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.congested(func() {
			for range 100 {
				if err := m.Sessions.End(t.Context(), c.who.Session); api.CodeOf(err) != api.Unavailable {
					t.Fatal(err)
				}
			}
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			if len(m.tables.outbox.ends) != 1 {
				t.Errorf("the end of one session is remembered %d times", len(m.tables.outbox.ends))
			}
		})
		testbed.Pass(session.MaxTick)
		synctest.Wait()
		if _, there := m.epoch.state().Sessions.Get(c.who.Session); there {
			t.Error("it has not ended")
		}
	})
}

// Clients' requests do not use the room that is kept for the master's own commands.
func TestEndsLeaveRoom(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		l := tinyLimits()
		m.limit(l)
		entered, leave := make(chan struct{}), make(chan struct{})
		m.applying = func() {
			m.applying = nil
			close(entered)
			<-leave
		}
		end := func() { _ = m.Sessions.End(t.Context(), c.who.Session) }
		go end()
		<-entered
		for range l.pending / 10 {
			go end()
		}
		synctest.Wait()
		m.epoch.proposer.mu.Lock()
		bytes := m.epoch.proposer.bytes
		m.epoch.proposer.mu.Unlock()
		if bytes < l.pending/2 || bytes > l.pending*3/4 {
			t.Errorf("%d of %d bytes are taken; a quarter is the master's own", bytes, l.pending)
		}
		close(leave)
	})
}

// A change that was given up leaves nothing behind, however long the client for which it waited is
// silent.
func TestChangeThatIsGivenUpIsForgotten(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			done := author.write(ctx, f)
			synctest.Wait()
			cancel()
			if err := <-done; api.CodeOf(err) != api.Unavailable {
				t.Fatal(err)
			}
		}
		m.epoch.mu.Lock()
		n := len(m.tables.copyset.clearings)
		m.epoch.mu.Unlock()
		if n != 0 {
			t.Errorf("%d changes are remembered that were given up", n)
		}
		wrote := author.write(t.Context(), f)
		reader.acknowledge(t, reader.hear(t))
		if stillWaits(wrote) {
			t.Error("the change that was not given up still waits")
		}
	})
}

// The cost of a change of a name does not grow with the number of clients that cache it: each gets
// one invalidation, and all changes of the name wait for them together. The changes of others wait
// for the author of a change, too.
func TestChangesOfANameWaitTogether(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		const path, others = "/ls/local/f", 100
		one, other, reader := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		mine, its := one.open(t, path, api.MayCreate).Handle, other.open(t, path, api.MustExist).Handle
		for _, c := range []*soloClient{one, reader} {
			c.open(t, path, api.MustExist)
		}
		for i := range others {
			if !m.coherence.registerReader(m.client(t, byte(10+i)).who.Session, "/f") {
				t.Fatal("it may not cache")
			}
		}
		m.epoch.mu.Lock()
		name := []api.Name{"/f"}
		first := m.coherence.beginChange(one.who.Session, name)
		steps := m.epoch.mu.steps
		second := m.coherence.beginChange(one.who.Session, name)
		if m.epoch.mu.steps != steps || len(m.tables.copyset.clearings) != 1 {
			t.Errorf("the second change took %d steps; %d clearings", m.epoch.mu.steps-steps, len(m.tables.copyset.clearings))
		}
		for id := range m.tables.boxes.byID {
			if id != one.who.Session && id != other.who.Session && id != reader.who.Session {
				m.tables.copyset.drop(id, others)
			}
		}
		m.epoch.mu.Unlock()
		m.Master.coherence.endChange(first)
		m.Master.coherence.endChange(second)

		writes := []<-chan error{one.write(t.Context(), mine), other.write(t.Context(), its)}
		for _, c := range []*soloClient{reader, one, other} {
			for i, wrote := range writes {
				if !stillWaits(wrote) {
					t.Fatalf("write %d waits no longer for session %v", i, c.who.Session)
				}
			}
			told := 0
			events := c.hear(t)
			for _, e := range events {
				if e.Kind == api.EventCacheInvalidation && e.Path == path {
					told++
				}
			}
			if told != 1 {
				t.Errorf("session %v was told %d times", c.who.Session, told)
			}
			c.acknowledge(t, events)
		}
		for _, wrote := range writes {
			if err := <-wrote; err != nil {
				t.Error(err)
			}
		}
	})
}

// An ephemeral node is removed when no client caches it or its directory's listing, in whatever
// order they drop these.
func TestRemovalWaitsForEveryName(t *testing.T) {
	for _, first := range []int{0, 1} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			owner, readers := m.client(t, 1), []*soloClient{m.client(t, 2), m.client(t, 3)}
			e := owner.openEphemeral(t, "/ls/local/e")
			for i, name := range []api.Name{"/e", ""} {
				if !m.coherence.registerReader(readers[i].who.Session, name) {
					t.Fatal("it may not cache")
				}
			}
			if err := m.Files.Close(t.Context(), owner.mutation(), e); err != nil {
				t.Fatal(err)
			}
			for n, i := range []int{first, 1 - first} {
				synctest.Wait()
				if _, there := m.epoch.state().Tree.Get("/e"); !there {
					t.Fatalf("it went when %d of 2 had dropped it", n)
				}
				readers[i].acknowledge(t, readers[i].hear(t))
			}
			synctest.Wait()
			if _, there := m.epoch.state().Tree.Get("/e"); there {
				t.Error("it is still there")
			}
		})
	}
}
