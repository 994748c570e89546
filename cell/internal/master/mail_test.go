package master

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"pgregory.net/rapid"
)

func newTestMailbox() *mailbox {
	l := newMailboxes(func() {})
	l.add(1, "p")
	return l.byID[1]
}

// bytesByPrincipal recounts the events that wait in mailboxes.
func bytesByPrincipal(boxes map[api.SessionID]*mailbox) map[string]int {
	bytes := map[string]int{}
	for _, b := range boxes {
		for _, e := range b.events {
			bytes[b.principal] += eventSize(e)
		}
	}
	return bytes
}

// The size of an event includes the event itself and two pointers, because lists grow by doubling.
func TestEventBytes(t *testing.T) {
	if least := int(unsafe.Sizeof(Event{}) + 2*unsafe.Sizeof(uintptr(0))); eventBytes < least {
		t.Errorf("an event is counted with %d bytes; it takes %d", eventBytes, least)
	}
}

// TestMailIsCounted posts to the mailboxes of several principals' sessions, sends, acknowledges and
// ends them at random, and compares with a recount. The count must be that of the waiting events.
// An event that may be dropped is accepted if the mailbox and the mail of its own principal have
// room, whatever the others have. A session that missed an event is told so.
func TestMailIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newMailboxes(func() {})
		l.limit = rapid.IntRange(2_000, 40_000).Draw(t, "most")
		boxes := l.byID
		for id := range api.SessionID(6) {
			l.add(id, fmt.Sprint("p", id%3))
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range 600 {
			b := boxes[api.SessionID(random.IntN(6))]
			switch p := random.IntN(100); {
			case b == nil:
			case p < 80:
				postCounted(t, l, b, random)
			case p < 90:
				b.takeEvents(b.received)
			case p < 99:
				b.acknowledge(b.delivered-min(b.delivered, uint64(random.IntN(3))), 0)
			case len(boxes) > 3:
				b.discard()
				for id := range boxes {
					if boxes[id] == b {
						delete(boxes, id)
					}
				}
			}
			checkMail(t, l)
		}
		for id, b := range boxes {
			if id%2 == 0 {
				b.discard()
				delete(boxes, id)
			}
			for len(b.events) > 0 {
				b.takeEvents(b.received)
				b.acknowledge(b.delivered, b.delivered)
			}
			checkMail(t, l)
		}
		if len(l.used.of) > 0 {
			t.Fatalf("nothing waits, and %v is counted", l.used.of)
		}
	})
}

// postCounted posts an event and checks whether it was accepted.
func postCounted(t *rapid.T, l *mailboxes, b *mailbox, random *rand.Rand) {
	kinds := []api.EventKind{
		api.EventContentsModified, api.EventContentsModified, api.EventHandleInvalid,
		api.EventCacheInvalidation, api.EventLockLost, api.EventMasterFailedOver,
	}
	e := &Event{
		Kind: kinds[random.IntN(len(kinds))], Path: strings.Repeat("p", random.IntN(api.MaxPath)), Child: strings.Repeat("c", random.IntN(9)),
		Explanation: strings.Repeat("e", random.IntN(api.MaxReason)),
	}
	room := l.limit - bytesByPrincipal(l.byID)[b.principal]
	want := room >= eventSize(e)
	switch e.Kind {
	case api.EventContentsModified:
		want = room-l.limit/4 >= eventSize(e)
	case api.EventCacheInvalidation, api.EventLockLost, api.EventMasterFailedOver:
		want = true
	}
	b.post(e)
	if got := slices.Contains(b.events, e); got != want {
		t.Fatalf("%v of %d bytes, with room for %d of %d: accepted is %v", e.Kind, eventSize(e), room, l.limit, got)
	}
	if !want && b.marker <= b.delivered && !b.missed {
		t.Fatalf("%v was dropped, and the session will not be told", e.Kind)
	}
}

// checkMail compares what is counted with the events that wait.
func checkMail(t interface{ Errorf(string, ...any) }, l *mailboxes) {
	bytes, all := bytesByPrincipal(l.byID), 0
	for _, n := range bytes {
		all += n
	}
	if !maps.Equal(l.used.of, bytes) || l.used.all != all {
		t.Errorf("%v bytes are counted, %d in all; the events have %v", l.used.of, l.used.all, bytes)
	}
}

// mailClient is a session of a principal, without a cache.
func (s *soloMaster) mailClient(t *testing.T, name, principal string) *soloClient {
	t.Helper()
	c := cachingSessionOf(name).CreateSession
	c.Principal, c.MayCache = principal, false
	id, grant, err := s.Sessions.Create(t.Context(), *c)
	noErr(t, err)
	return &soloClient{m: s, who: Caller{Session: id, Epoch: 1}, grant: grant.Number}
}

// watch opens a file for events of its contents.
func (c *soloClient) watch(t *testing.T, path string) Handle {
	t.Helper()
	r := c.asked(path, raftfsm.Open{Create: api.MayCreate, Kind: api.File, Rights: namespace.ToRead | namespace.ToWrite})
	r.Handle.Events = EventSet(0).With(api.EventContentsModified)
	o := must(c.m.Files.Open(t.Context(), r))(t)
	return o.Handle
}

// checkMail compares the count with the waiting events.
func (s *soloMaster) checkMail(t *testing.T) {
	t.Helper()
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	checkMail(t, s.tables.boxes)
}

// The sessions of a principal do not receive events, and fill only that principal's mail. They are
// told that they missed events; sessions of other principals miss none. The count returns to zero
// when events are acknowledged, when sessions close or expire, and under the next master.
func TestMailOfAPrincipalIsBounded(t *testing.T) {
	const most, watchers, writes = 64 << 10, 20, 100
	path := "/ls/local/" + strings.Repeat("d", 200)
	var left raftfsm.State
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.locked(func() { m.tables.boxes.limit = most })
		author, other := m.mailClient(t, "author", "author"), m.mailClient(t, "other", "other")
		f := author.watch(t, path)
		var crowd []*soloClient
		for i := range watchers {
			c := m.mailClient(t, fmt.Sprint("watcher ", i), "crowd")
			c.watch(t, path)
			crowd = append(crowd, c)
		}
		other.watch(t, path)
		for range writes {
			noErr(t, <-author.write(t.Context(), f))
		}
		m.checkMail(t)
		m.epoch.mu.Lock()
		if used := m.tables.boxes.used.of["crowd"]; used < most/2 || used > most+watchers*(eventBytes+api.MaxPath) {
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
		if n := len(m.tables.boxes.used.of); n > 0 || m.epoch.state().Sessions.Len() > 0 {
			t.Errorf("%d sessions live, and mail of %d principals is counted", m.epoch.state().Sessions.Len(), n)
		}
	})
	inSolo(t, func(s *raftfsm.State) { *s = left }, func(t *testing.T, m *soloMaster) {
		m.checkMail(t)
		if len(m.tables.boxes.used.of) != 3 {
			t.Errorf("after a fail-over mail is counted of %v", m.tables.boxes.used.of)
		}
		for s := range m.epoch.state().Sessions.All() {
			c := &soloClient{m: m, who: Caller{Session: s.ID, Epoch: 1}}
			c.acknowledge(t, c.hear(t))
		}
		m.checkMail(t)
		if len(m.tables.boxes.used.of) != 0 {
			t.Errorf("all is acknowledged, and mail is counted of %v", m.tables.boxes.used.of)
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
		m.locked(func() { m.tables.boxes.limit = 4 << 10 })
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
			return m.tables.leases.Alive(c.who.Session)
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
