package master

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// When very many names in a session's cache change together, it gets the invalidations in several replies, each of a
// size that clients accept, and keeps its lease.
func TestManyInvalidations(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		reader := m.client(t, 1)
		const names = 9_000
		mu := m.epoch.mu.hold()
		for i := range names {
			name := api.Name(fmt.Sprintf("/%s%06d", strings.Repeat("d", 240), i))
			m.tables.Copyset.Register(reader.who.Session, "p", name, false, 0)
			m.coherence.beginChange(mu, 0, []api.Name{name})
		}
		mu.end()
		events, replies := 0, 0
		for events < names {
			told := reader.hear(t)
			stopIf(t, len(told) == 0, "%d of %d names were told in %d replies", events, names, replies)
			size := 0
			for _, e := range told {
				size += e.WireSize()
			}
			failIf(t, size > api.MaxMessage, "a reply of %d bytes; clients accept %d", size, api.MaxMessage)
			events, replies, reader.acked = events+len(told), replies+1, told[len(told)-1].Sequence
		}
		time.Sleep(5 * time.Second)
		// The first is parked for so long that it no longer counts as a sign of life.
		if was := reader.grant; len(reader.hear(t))+len(reader.hear(t)) != 0 || reader.grant == was {
			t.Error("the lease is not extended after everything was told")
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if len(m.tables.Copyset.Copies) > 0 || len(m.tables.Copyset.Told) > 0 {
			t.Errorf("%d copies are kept, and %d sessions are waited for", len(m.tables.Copyset.Copies), len(m.tables.Copyset.Told))
		}
	})
}

// A second CreateSession with the same nonce is answered with the existing
// session. It extends nothing, because it acknowledges nothing.
func TestCreateSessionAgainExtendsNothing(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, silent := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		silent.open(t, "/ls/local/f", api.MustExist)
		go author.keep(t.Context())
		began := time.Now()
		done := author.write(t.Context(), f)
		for {
			id, grant, err := m.Sessions.Create(t.Context(), *cachingSession(2).CreateSession)
			if err != nil || id != silent.who.Session {
				break // that session has ended
			}
			if end := time.Since(began) + grant.Lease; end > api.DefaultLease {
				t.Fatalf("after %v it was promised until %v", time.Since(began), end)
			}
			time.Sleep(time.Second)
		}
		if err := <-done; err != nil || time.Since(began) > api.DefaultLease+2*time.Second {
			t.Errorf("the change was made after %v: %v", time.Since(began), err)
		}
		synctest.Wait()
	})
}

// uncached submits changes of a node that no client has in its cache, as mutate would. The caller holds s.mu.
func (s *soloMaster) uncached(name api.Name, changes ...raftfsm.Command) {
	s.tables.Copyset.Changing[name]++
	for _, c := range changes {
		s.epoch.submit(c)
	}
}

// locked does something with s.mu held.
func (s *soloMaster) locked(do func()) {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	do()
}

// A client that opens a node for events gets the state in the answer, and later changes as events (Chubby §2.5). Every
// change between reading the state and entering the handle must be in the answer or among the events.
func TestOpenAndEventsLeaveNoGap(t *testing.T) {
	write := func(c *soloClient, node namespace.Ref) raftfsm.Command {
		return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(), Node: node, Contents: []byte("x")}}
	}
	remove := func(c *soloClient, node namespace.Ref) raftfsm.Command {
		return raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(), Node: node}}
	}
	for name, test := range map[string]struct {
		exists bool
		change func(c *soloClient, node namespace.Ref) raftfsm.Command
	}{
		"written after it was found":        {true, write},
		"deleted after it was found":        {true, remove},
		"written in the entry that made it": {false, write},
		"deleted in the entry that made it": {false, remove},
	} {
		t.Run(name, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				author, watcher := m.client(t, 1), m.client(t, 2)
				node := namespace.Ref{Name: "/f", Instance: api.Generation(m.epoch.state().Counter + 1)} // once it has been created
				m.locked(func() { m.uncached(node.Name) })
				r := watcher.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate})
				r.Handle.Events = EventSet(0).With(api.EventContentsModified)
				var o Opened
				open := func() (err error) { o, err = m.Files.Open(t.Context(), r); return err }
				done := make(chan error, 1)
				if test.exists {
					author.open(t, "/ls/local/f", api.MayCreate)
					load := m.Master.epoch.state
					m.proving.once(func() {
						m.Master.epoch.state = func() *raftfsm.State { // called with epoch.mu held: changes are observed after it
							found := load()
							m.Master.epoch.state = load
							m.uncached(node.Name, test.change(author, node))
							return found
						}
					})
					done <- open()
				} else {
					// While an entry is on its way, the proposer collects commands for the next.
					m.applying.once(func() {
						go func() { done <- open() }()
						synctest.Wait()
						m.locked(func() { m.uncached(node.Name, test.change(author, node)) })
					})
					m.locked(func() { m.epoch.submit(raftfsm.Command{EndDelay: &raftfsm.EndDelay{Name: "/nothing", ID: 1}}) })
				}
				noErr(t, <-done)
				synctest.Wait()
				m.epoch.mu.Lock()
				defer m.epoch.mu.Unlock()
				told := map[api.EventKind]int{}
				for _, e := range m.tables.Boxes.ByID[watcher.who.Session].Events {
					if e.Handle == r.Handle.Owner.Handle {
						told[e.Kind]++
					}
				}
				now, there := m.epoch.state().Tree.Get("/f")
				switch {
				case !there && told[api.EventHandleInvalid] == 0:
					t.Error("the node is gone, and no event says so")
				case there && now.Content != o.Stat.Content && told[api.EventContentsModified] == 0:
					t.Errorf("the answer shows generation %d, the node has %d, and no event says so", o.Stat.Content, now.Content)
				case there && now.Content == now.Instance:
					t.Error("nothing was changed: the test proves nothing")
				}
			})
		})
	}
}

// A session is asked back one lock at most for each that it holds, whatever it acknowledges: one that takes and
// releases a lock again and again leaves nothing behind.
func TestLocksAskedBackAreBounded(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		silent := m.client(t, 9) // it acknowledges nothing
		mine := silent.watches(t, "/ls/local/f", api.EventConflictingLock, true)
		for range 1_000 {
			a := silent.try(t, mine, api.Exclusive)
			mu := m.epoch.mu.holdPatiently()
			r := m.events.recall(mu, mine.Node, h[0].Owner, api.Exclusive) // as TryAcquire and Delete of another session do
			mu.end()
			if r == nil {
				t.Fatal("the lock was not asked back")
			}
			noErr(t, m.Locks.Release(t.Context(), silent.mutation(), mine, a.Generation))
			select {
			case <-r.Done:
			default:
				t.Fatal("the lock is free, and its recall goes on")
			}
		}
		box := m.tables.Boxes.ByID[silent.who.Session]
		if n := len(box.Recalled); n > 1 {
			t.Errorf("the session has no lock, and %d recalls are kept for it", n)
		}
	})
}

// mailClient is a session of a principal, without a cache.
func (s *soloMaster) mailClient(t *testing.T, name, principal string) *soloClient {
	t.Helper()
	return s.clientOf(t, 0, func(c *raftfsm.CreateSession) {
		c.Nonce, c.Principal, c.MayCache = fmt.Appendf(nil, "%-16.16s", name), principal, false
	})
}

// recountMail compares the count with the waiting events.
func recountMail(t *testing.T, l *tables.Mailboxes) {
	t.Helper()
	bytes, all := map[string]int{}, 0
	for _, b := range l.ByID {
		for _, e := range b.Events {
			bytes[b.Principal] += e.Size()
			all += e.Size()
		}
	}
	failIf(t, !maps.Equal(l.Used.Of, bytes) || l.Used.All != all, "%v bytes are counted, %d in all; the events have %v", l.Used.Of, l.Used.All, bytes)
}

func (s *soloMaster) checkMail(t *testing.T) {
	t.Helper()
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	recountMail(t, s.tables.Boxes)
}

// The sessions of a principal do not receive events, and fill only that principal's mail. They are
// told that they missed events; sessions of other principals miss none. The count returns to zero
// when events are acknowledged, when sessions close or expire, and under the next master.
func TestMailOfAPrincipalIsBounded(t *testing.T) {
	const most, watchers, writes = 64 << 10, 20, 100
	path := "/ls/local/" + strings.Repeat("d", 200)
	var left raftfsm.State
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.locked(func() { m.tables.Boxes.Limit = most })
		author, other := m.mailClient(t, "author", "author"), m.mailClient(t, "other", "other")
		f := author.watches(t, path, api.EventContentsModified, false)
		var crowd []*soloClient
		for i := range watchers {
			c := m.mailClient(t, fmt.Sprint("watcher ", i), "crowd")
			c.watches(t, path, api.EventContentsModified, false)
			crowd = append(crowd, c)
		}
		other.watches(t, path, api.EventContentsModified, false)
		for range writes {
			noErr(t, <-author.write(t.Context(), f))
		}
		m.checkMail(t)
		m.epoch.mu.Lock()
		if used := m.tables.Boxes.Used.Of["crowd"]; used < most/2 || used > most+watchers*((&Event{}).Size()+api.MaxPath) {
			t.Errorf("the events of a crowd take %d bytes; the bound is %d", used, most)
		}
		m.epoch.mu.Unlock()
		kinds := countKinds(other.hear(t))
		if kinds[api.EventContentsModified] != writes || kinds[api.EventLost] != 0 {
			t.Errorf("a session of another principal was told %v; want %d events", kinds, writes)
		}
		for _, c := range crowd[:watchers/2] {
			told := c.hear(t)
			if kinds := countKinds(told); kinds[api.EventLost] != 1 {
				t.Errorf("a session of the crowd was told %v; want that it missed some", kinds)
			}
			c.acknowledge(t, told)
		}
		m.checkMail(t)
		noErr(t, m.Sessions.End(t.Context(), crowd[watchers-1].who.Session))
		m.checkMail(t)
		left = *m.fsm.Load()
		time.Sleep(10 * time.Minute) // no client keeps them alive
		synctest.Wait()
		m.checkMail(t)
		if n := len(m.tables.Boxes.Used.Of); n > 0 || m.epoch.state().Sessions.Len() > 0 {
			t.Errorf("%d sessions live, and mail of %d principals is counted", m.epoch.state().Sessions.Len(), n)
		}
	})
	inSolo(t, func(s *raftfsm.State) { *s = left }, func(t *testing.T, m *soloMaster) {
		m.checkMail(t)
		if len(m.tables.Boxes.Used.Of) != 3 {
			t.Errorf("after a fail-over mail is counted of %v", m.tables.Boxes.Used.Of)
		}
		for s := range m.epoch.state().Sessions.All() {
			c := &soloClient{m: m, who: Caller{Session: s.ID, Epoch: 1}}
			c.acknowledge(t, c.hear(t))
		}
		m.checkMail(t)
		if len(m.tables.Boxes.Used.Of) != 0 {
			t.Errorf("all is acknowledged, and mail is counted of %v", m.tables.Boxes.Used.Of)
		}
	})
}

func countKinds(events []*Event) map[api.EventKind]int {
	kinds := map[api.EventKind]int{}
	for _, e := range events {
		kinds[e.Kind]++
	}
	return kinds
}

// A session takes a lock again and again, and does not receive the revocations. When its principal has too much mail,
// its lease is no longer extended. The lease of another principal's session that loses a lock is still extended.
func TestLossesThatNobodyHearsEnd(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.locked(func() { m.tables.Boxes.Limit = 4 << 10 })
		author, deaf, listener := m.mailClient(t, "author", "author"), m.mailClient(t, "deaf", "deaf"), m.mailClient(t, "listener", "listener")
		lose := func(c *soloClient, path string) bool {
			h := c.open(t, path, api.MayCreate).Handle
			got := c.try(t, h, api.Exclusive)
			if got.Code() != api.OK {
				return false
			}
			if err := m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: author.mutation(), Lock: h.Node, Now: true, Why: strings.Repeat("why", 80)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			return m.tables.Leases.Alive(c.who.Session)
		}
		author.open(t, "/ls/local/theirs", api.MayCreate)
		n := 0
		for lose(deaf, fmt.Sprint("/ls/local/lock", n)) {
			if n++; n > 100 {
				t.Fatal("its lease is extended although it has lost 100 locks and acknowledged none")
			}
		}
		failIf(t, n < 5, "its lease is no longer extended after %d losses", n)
		if !lose(listener, "/ls/local/theirs") {
			t.Error("the lease of another principal's session, which lost one lock, is not extended either")
		}
		m.checkMail(t)
	})
}
