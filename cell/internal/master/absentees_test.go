package master

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
				mustFail(t, m.Sessions.End(t.Context(), c.who.Session), api.Unavailable)
			}
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			equal(t, len(m.tables.Outbox.Ends), 1, "the end of one session is remembered %d times")
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
		entered, leave := m.holdNextEntry()
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

// A change that was given up leaves nothing behind, however long the client for which it waited is silent.
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
			mustFail(t, <-done, api.Unavailable)
		}
		m.epoch.mu.Lock()
		n := len(m.tables.Copyset.Clearings)
		m.epoch.mu.Unlock()
		equal(t, n, 0, "%d changes are remembered that were given up")
		wrote := author.write(t.Context(), f)
		reader.acknowledge(t, reader.hear(t))
		failIf(t, stillWaits(wrote), "the change that was not given up still waits")
	})
}

// The cost of a change of a name does not grow with the number of clients that cache it: each gets one invalidation,
// and all changes of the name wait for them together. The changes of others wait for the author of a change, too.
func TestChangesOfANameWaitTogether(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		const path, others = "/ls/local/f", 100
		one, other, reader := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		mine, its := one.open(t, path, api.MayCreate).Handle, other.open(t, path, api.MustExist).Handle
		for _, c := range []*soloClient{one, reader} {
			c.open(t, path, api.MustExist)
		}
		for i := range others {
			stopIf(t, !m.coherence.registerReader(m.client(t, byte(10+i)).who.Session, "/f"), "it may not cache")
		}
		mu := m.epoch.mu.hold()
		name := []api.Name{"/f"}
		first := m.coherence.beginChange(mu, one.who.Session, name)
		steps := m.epoch.mu.steps
		second := m.coherence.beginChange(mu, one.who.Session, name)
		if m.epoch.mu.steps != steps || len(m.tables.Copyset.Clearings) != 1 {
			t.Errorf("the second change took %d steps; %d clearings", m.epoch.mu.steps-steps, len(m.tables.Copyset.Clearings))
		}
		for id := range m.tables.Boxes.ByID {
			if id != one.who.Session && id != other.who.Session && id != reader.who.Session {
				m.tables.Copyset.Drop(id, others)
			}
		}
		mu.end()
		m.Master.coherence.endChange(first)
		m.Master.coherence.endChange(second)

		writes := []<-chan error{one.write(t.Context(), mine), other.write(t.Context(), its)}
		for _, c := range []*soloClient{reader, one, other} {
			for i, wrote := range writes {
				stopIf(t, !stillWaits(wrote), "write %d waits no longer for session %v", i, c.who.Session)
			}
			told := 0
			events := c.hear(t)
			for _, e := range events {
				if e.Kind == api.EventCacheInvalidation && e.Path == path {
					told++
				}
			}
			failIf(t, told != 1, "session %v was told %d times", c.who.Session, told)
			c.acknowledge(t, events)
		}
		for _, wrote := range writes {
			report(t, <-wrote)
		}
	})
}

// An ephemeral node is removed when no client caches it or its directory's listing, in whatever order they drop these.
func TestRemovalWaitsForEveryName(t *testing.T) {
	for _, first := range []int{0, 1} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			owner, readers := m.client(t, 1), []*soloClient{m.client(t, 2), m.client(t, 3)}
			e := owner.openEphemeral(t, "/ls/local/e")
			for i, name := range []api.Name{"/e", ""} {
				stopIf(t, !m.coherence.registerReader(readers[i].who.Session, name), "it may not cache")
			}
			noErr(t, m.Files.Close(t.Context(), owner.mutation(), e))
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

// A change waits for several clients. The master cuts off those that got the
// invalidation long ago, and not those that got it just now.
func TestOnlyWhoIsLateIsCutOff(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.coherence.slowClient = 2 * time.Second
		author, late, prompt := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		late.open(t, "/ls/local/f", api.MustExist)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustFail(t, <-author.write(ctx, f), api.Unavailable)
		prompt.open(t, "/ls/local/f", api.MustExist)
		time.Sleep(5 * time.Second)
		wrote := author.write(t.Context(), f)
		time.Sleep(time.Second)
		synctest.Wait()
		alive := func(c *soloClient) bool {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			return m.tables.Leases.Alive(c.who.Session)
		}
		if alive(late) || !alive(prompt) {
			t.Errorf("late is alive: %v; prompt is alive: %v", alive(late), alive(prompt))
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		failIf(t, alive(prompt), "it has delayed the change for too long, and is not cut off")
		late.acknowledge(t, late.hear(t))
		prompt.acknowledge(t, prompt.hear(t))
		report(t, <-wrote)
	})
}

// Clients that delay the removal of a node are cut off at the same time, and not one after the
// other, whichever of the names that the removal touches they cache.
func TestLateForARemovalAreCutOffTogether(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.coherence.slowClient = 2 * time.Second
		owner, readers := m.client(t, 1), []*soloClient{m.client(t, 2), m.client(t, 3)}
		e := owner.openEphemeral(t, "/ls/local/e")
		for i, name := range []api.Name{"/e", ""} {
			stopIf(t, !m.coherence.registerReader(readers[i].who.Session, name), "it may not cache")
		}
		noErr(t, m.Files.Close(t.Context(), owner.mutation(), e))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		for i, r := range readers {
			if m.tables.Leases.Alive(r.who.Session) {
				t.Errorf("reader %d has delayed the removal for too long, and is not cut off", i)
			}
		}
	})
}

// Searching for clients that delay a change for too long takes one step for each client and name.
// Naming them takes one step for each client.
func TestLookForLateClientsLetsOthersIn(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		const clients = 20
		m.coherence.slowClient = 2 * time.Second
		names := []api.Name{"/a", "/b"}
		for i := range clients {
			stopIf(t, !m.coherence.registerReader(m.client(t, byte(i+1)).who.Session, names...), "it may not cache")
		}
		var holds atomic.Int32
		mu := m.epoch.mu.hold()
		ch := m.coherence.beginChange(mu, 0, names)
		m.epoch.mu.maxStepsOverride = 1
		m.epoch.mu.held = func(time.Duration) { holds.Add(1) }
		mu.end()
		holds.Store(0)
		mu = m.epoch.mu.holdPatiently()
		m.coherence.cutOff(mu, ch, names[0], m.epoch.clock())
		mu.end()
		if n := int(holds.Load()); n < clients*len(names) {
			t.Errorf("%d holds of the mutex, want one for each of %d clients and of %d names", n, clients, len(names))
		}
		holds.Store(0)
		if who := m.coherence.laggards(ch); !strings.HasSuffix(who, "and 15 more") {
			t.Errorf("%s: want 5 of %d clients", who, clients)
		}
		if n := int(holds.Load()); n < clients {
			t.Errorf("%d holds of the mutex, want one for each of %d clients", n, clients)
		}
		m.Master.coherence.endChange(ch)
	})
}
