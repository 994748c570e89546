package master

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// TestMailboxLosesNothingInSilence posts, sends, loses replies and acknowledges at random, with queues that are mostly
// full, and compares with a client that keeps a list. Every posted event reaches the client, or a marker that was made
// or repeated after the event does. All essential events reach it; once sent they stay until they are received. No
// reply is larger than a client accepts.
func TestMailboxLosesNothingInSilence(t *testing.T) {
	seeds := uint64(12)
	if *full {
		seeds = 400
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newTestMailbox()
		posted, essentials := 0, map[api.Generation]bool{} // posted counts; events carry their number in Generation
		unseen := map[api.Generation]bool{}                // posted, and neither received nor covered by a marker
		var seen uint64
		deliver := func(events []*Event) {
			size := 0
			for _, e := range events {
				size += e.WireSize()
				if e.Sequence <= seen {
					continue
				}
				stopIf(t, e.Sequence != seen+1, "seed %d: event %d came after %d", seed, e.Sequence, seen)
				seen = e.Sequence
				delete(essentials, e.Generation)
				delete(unseen, e.Generation)
				if e.Kind == api.EventLost {
					clear(unseen) // the client reads everything again now
				}
			}
			stopIf(t, size > maxTold+api.MaxPath+100, "seed %d: a reply of %d bytes", seed, size)
		}
		var acked uint64
		keepAlive := func(lost bool) {
			b.acknowledge(seen, acked)
			if told := b.takeEvents(b.received); !lost {
				deliver(told)
			}
		}
		for range 4_000 {
			switch p := r.IntN(100); {
			case p < 90:
				posted++
				e := &Event{Kind: api.EventContentsModified, Generation: api.Generation(posted), Path: strings.Repeat("p", r.IntN(api.MaxPath))}
				unseen[e.Generation] = true
				if r.IntN(10) == 0 {
					e.Kind = api.EventCacheInvalidation
					if r.IntN(2) == 0 {
						e.Kind = api.EventHandleInvalid
					}
					delete(unseen, e.Generation)
					essentials[e.Generation] = true
				}
				b.post(e)
			case p < 92:
				keepAlive(r.IntN(3) == 0)
			case p < 95:
				acked = seen - r.Uint64N(seen-acked+1)
			case p == 95:
				for range api.MaxEventQueue / 2 {
					posted++
					unseen[api.Generation(posted)] = true
					b.post(&Event{Kind: api.EventChildAdded, Generation: api.Generation(posted)})
				}
			}
			others := 0
			for _, e := range b.events {
				if !e.Kind.Essential() && !invalidates(e) {
					others++
				}
			}
			stopIf(t, others > api.MaxEventQueue+1, "seed %d: %d events wait, besides essential ones", seed, others)
		}
		for len(b.events) > 0 {
			keepAlive(false)
		}
		if len(unseen) > 0 || len(essentials) > 0 {
			t.Fatalf("seed %d: %d events, and %d essential ones, did not arrive", seed, len(unseen), len(essentials))
		}
	}
}

// A session does not receive events, and opens and closes handles of deleted nodes. Its mailbox
// gets at most as many events as it may have handles.
func TestEndsOfHandlesAreBounded(t *testing.T) {
	b := newTestMailbox()
	for round := range uint64(3) {
		for range 2 * api.MaxHandles {
			b.post(&Event{Kind: api.EventHandleInvalid})
		}
		if n := len(b.events); n > api.MaxHandles+api.MaxEventQueue+1 || b.ends < api.MaxHandles {
			t.Fatalf("round %d: %d events wait, %d of them ends", round, n, b.ends)
		}
		for len(b.events) > 0 {
			b.takeEvents(b.received)
			b.acknowledge(b.delivered, b.delivered)
		}
		stopIf(t, b.ends != 0, "round %d: %d ends in an empty mailbox", round, b.ends)
	}
}

// A session is granted nothing before it has acknowledged everything that was essential when events were last sent to
// it, also what did not fit into that reply.
func TestNothingIsGrantedBeforeAllIsHeard(t *testing.T) {
	b := newTestMailbox()
	for range 10_000 {
		b.post(&Event{Kind: api.EventCacheInvalidation, Path: strings.Repeat("p", 500)})
	}
	stopIf(t, !b.isAcknowledged(), "an event that was not sent counts as unacknowledged")
	replies := 0
	for {
		replies++
		told := b.takeEvents(b.received)
		last := told[len(told)-1].Sequence
		if b.post(&Event{Kind: api.EventContentsModified}); b.isAcknowledged() {
			t.Fatal("it counts as acknowledged too early")
		}
		if b.acknowledge(last, last); b.isAcknowledged() {
			break
		}
	}
	if want := b.essential; replies < 15 || b.acked < want {
		t.Errorf("after %d replies %d is acknowledged, and %d was to be", replies, b.acked, want)
	}
}

// The acknowledgement of a revocation waits for the lock's owner; receiving other events does not.
func TestReceivedIsNotAcknowledged(t *testing.T) {
	b := newTestMailbox()
	b.post(&Event{Kind: api.EventLockLost})
	b.post(&Event{Kind: api.EventCacheInvalidation})
	b.takeEvents(b.received)
	b.acknowledge(2, 0)
	if len(b.events) != 0 || b.received != 2 || b.acked != 0 || b.isAcknowledged() {
		t.Errorf("%d events wait, received %d, acknowledged %d, heard %v", len(b.events), b.received, b.acked, b.isAcknowledged())
	}
	if b.acknowledge(2, 2); !b.isAcknowledged() {
		t.Error("everything is acknowledged, and does not count as such")
	}
}

// When very many names in a session's cache change together, it gets the invalidations in several replies, each of a
// size that clients accept, and keeps its lease.
func TestManyInvalidations(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		reader := m.client(t, 1)
		const names = 9_000
		mu := m.epoch.mu.hold()
		for i := range names {
			name := api.Name(fmt.Sprintf("/%s%06d", strings.Repeat("d", 240), i))
			m.tables.copyset.register(reader.who.Session, "p", name, false, 0)
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
		if len(m.tables.copyset.copies) > 0 || len(m.tables.copyset.told) > 0 {
			t.Errorf("%d copies are kept, and %d sessions are waited for", len(m.tables.copyset.copies), len(m.tables.copyset.told))
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
		go func() {
			for t.Context().Err() == nil {
				author.acknowledgeAll(t)
			}
		}()
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

// acknowledgeAll sends a KeepAlive that acknowledges everything in the last reply.
func (c *soloClient) acknowledgeAll(t *testing.T) {
	reply, err := c.m.Sessions.KeepAlive(t.Context(), c.who, c.heard(), nil)
	if err != nil {
		return
	}
	if g := reply.Grant; g != nil {
		c.grant = g.Number
	}
	if n := len(reply.Events); n > 0 {
		c.acked = reply.Events[n-1].Sequence
	}
}

// uncached submits changes of a node that no client has in its cache, as mutate would. The caller holds s.mu.
func (s *soloMaster) uncached(name api.Name, changes ...raftfsm.Command) {
	s.tables.copyset.changing[name]++
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
				mutation := watcher.mutation()
				r := OpenRequest{Mutation: mutation, Path: api.MustParsePath("/ls/local/f"), Create: raftfsm.Open{Kind: api.File, Create: api.MayCreate, Rights: namespace.ToRead}}
				r.Handle = Handle{Owner: namespace.Owner{Session: watcher.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: namespace.ToRead, Events: EventSet(0).With(api.EventContentsModified)}
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
				for _, e := range m.tables.boxes.byID[watcher.who.Session].events {
					if e.Handle == api.HandleID(mutation.Number) {
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
		mine := silent.listening(t, "/ls/local/f", true)
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
			case <-r.done:
			default:
				t.Fatal("the lock is free, and its recall goes on")
			}
		}
		box := m.tables.boxes.byID[silent.who.Session]
		if n := len(box.recalled); n > 1 {
			t.Errorf("the session has no lock, and %d recalls are kept for it", n)
		}
	})
}
