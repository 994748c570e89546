package master

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// TestMailboxLosesNothingInSilence posts, sends, loses replies and acknowledges
// at random, with queues that are mostly full, and compares with a client that
// keeps a list. Every posted event reaches the client, or a marker that was
// made or repeated after the event does. All essential events reach it; once
// sent they stay until they are received. No reply is larger than a client
// accepts.
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
				if e.Sequence != seen+1 {
					t.Fatalf("seed %d: event %d came after %d", seed, e.Sequence, seen)
				}
				seen = e.Sequence
				delete(essentials, e.Generation)
				delete(unseen, e.Generation)
				if e.Kind == api.EventLost {
					clear(unseen) // the client reads everything again now
				}
			}
			if size > maxTold+api.MaxPath+100 {
				t.Fatalf("seed %d: a reply of %d bytes", seed, size)
			}
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
			if others > api.MaxEventQueue+1 {
				t.Fatalf("seed %d: %d events wait, besides essential ones", seed, others)
			}
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
		if b.ends != 0 {
			t.Fatalf("round %d: %d ends in an empty mailbox", round, b.ends)
		}
	}
}

// A session is granted nothing before it has acknowledged everything that was
// essential when events were last sent to it, also what did not fit into that
// reply.
func TestNothingIsGrantedBeforeAllIsHeard(t *testing.T) {
	b := newTestMailbox()
	for range 10_000 {
		b.post(&Event{Kind: api.EventCacheInvalidation, Path: strings.Repeat("p", 500)})
	}
	if !b.isAcknowledged() {
		t.Fatal("an event that was not sent counts as unacknowledged")
	}
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

// The acknowledgement of a revocation waits for the lock's owner; receiving
// other events does not.
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

// When very many names in a session's cache change together, it gets the
// invalidations in several replies, each of a size that clients accept, and
// keeps its lease.
func TestManyInvalidations(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		reader := m.client(t, 1)
		const names = 9_000
		m.epoch.mu.Lock()
		for i := range names {
			name := api.Name(fmt.Sprintf("/%s%06d", strings.Repeat("d", 240), i))
			m.tables.copyset.register(reader.who.Session, "p", name, false, 0)
			m.coherence.beginChange(0, []api.Name{name})
		}
		m.epoch.mu.Unlock()
		events, replies := 0, 0
		for events < names {
			told := reader.hear(t)
			if len(told) == 0 {
				t.Fatalf("%d of %d names were told in %d replies", events, names, replies)
			}
			size := 0
			for _, e := range told {
				size += e.WireSize()
			}
			if size > api.MaxMessage {
				t.Errorf("a reply of %d bytes; clients accept %d", size, api.MaxMessage)
			}
			events, replies, reader.acked = events+len(told), replies+1, told[len(told)-1].Sequence
		}
		time.Sleep(5 * time.Second)
		// The first is parked for so long that it no longer counts as a sign of
		// life.
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

// acknowledgeAll sends a KeepAlive that acknowledges everything in the last
// reply.
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
