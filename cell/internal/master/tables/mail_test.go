package tables

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/chubbylock/chubby/api"
	"pgregory.net/rapid"
)

func newTestMailbox() *Mailbox {
	l := newMailboxes(func() {})
	l.Add(1, "p")
	return l.ByID[1]
}

// bytesByPrincipal recounts the events that wait in mailboxes.
func bytesByPrincipal(boxes map[api.SessionID]*Mailbox) map[string]int {
	bytes := map[string]int{}
	for _, b := range boxes {
		for _, e := range b.Events {
			bytes[b.Principal] += e.Size()
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
		l.Limit = rapid.IntRange(2_000, 40_000).Draw(t, "most")
		boxes := l.ByID
		for id := range api.SessionID(6) {
			l.Add(id, fmt.Sprint("p", id%3))
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range 600 {
			b := boxes[api.SessionID(random.IntN(6))]
			switch p := random.IntN(100); {
			case b == nil:
			case p < 80:
				postCounted(t, l, b, random)
			case p < 90:
				b.TakeEvents(b.Received)
			case p < 99:
				b.Acknowledge(b.delivered-min(b.delivered, uint64(random.IntN(3))), 0)
			case len(boxes) > 3:
				b.Discard()
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
				b.Discard()
				delete(boxes, id)
			}
			for len(b.Events) > 0 {
				b.TakeEvents(b.Received)
				b.Acknowledge(b.delivered, b.delivered)
			}
			checkMail(t, l)
		}
		if len(l.Used.Of) > 0 {
			t.Fatalf("nothing waits, and %v is counted", l.Used.Of)
		}
	})
}

// postCounted posts an event and checks whether it was accepted.
func postCounted(t *rapid.T, l *Mailboxes, b *Mailbox, random *rand.Rand) {
	kinds := []api.EventKind{
		api.EventContentsModified, api.EventContentsModified, api.EventHandleInvalid,
		api.EventCacheInvalidation, api.EventLockLost, api.EventMasterFailedOver,
	}
	e := &Event{
		Kind: kinds[random.IntN(len(kinds))], Path: strings.Repeat("p", random.IntN(api.MaxPath)), Child: strings.Repeat("c", random.IntN(9)),
		Explanation: strings.Repeat("e", random.IntN(api.MaxReason)),
	}
	room := l.Limit - bytesByPrincipal(l.ByID)[b.Principal]
	want := room >= e.Size()
	switch e.Kind {
	case api.EventContentsModified:
		want = room-l.Limit/4 >= e.Size()
	case api.EventCacheInvalidation, api.EventLockLost, api.EventMasterFailedOver:
		want = true
	}
	b.Post(e)
	if got := slices.Contains(b.Events, e); got != want {
		t.Fatalf("%v of %d bytes, with room for %d of %d: accepted is %v", e.Kind, e.Size(), room, l.Limit, got)
	}
	if !want && b.marker <= b.delivered && !b.missed {
		t.Fatalf("%v was dropped, and the session will not be told", e.Kind)
	}
}

// checkMail compares what is counted with the events that wait.
func checkMail(t interface{ Errorf(string, ...any) }, l *Mailboxes) {
	bytes, all := bytesByPrincipal(l.ByID), 0
	for _, n := range bytes {
		all += n
	}
	if !maps.Equal(l.Used.Of, bytes) || l.Used.All != all {
		t.Errorf("%v bytes are counted, %d in all; the events have %v", l.Used.Of, l.Used.All, bytes)
	}
}

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
			b.Acknowledge(seen, acked)
			if told := b.TakeEvents(b.Received); !lost {
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
				b.Post(e)
			case p < 92:
				keepAlive(r.IntN(3) == 0)
			case p < 95:
				acked = seen - r.Uint64N(seen-acked+1)
			case p == 95:
				for range api.MaxEventQueue / 2 {
					posted++
					unseen[api.Generation(posted)] = true
					b.Post(&Event{Kind: api.EventChildAdded, Generation: api.Generation(posted)})
				}
			}
			others := 0
			for _, e := range b.Events {
				if !e.Kind.Essential() && !invalidates(e) {
					others++
				}
			}
			stopIf(t, others > api.MaxEventQueue+1, "seed %d: %d events wait, besides essential ones", seed, others)
		}
		for len(b.Events) > 0 {
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
			b.Post(&Event{Kind: api.EventHandleInvalid})
		}
		if n := len(b.Events); n > api.MaxHandles+api.MaxEventQueue+1 || b.ends < api.MaxHandles {
			t.Fatalf("round %d: %d events wait, %d of them ends", round, n, b.ends)
		}
		for len(b.Events) > 0 {
			b.TakeEvents(b.Received)
			b.Acknowledge(b.delivered, b.delivered)
		}
		stopIf(t, b.ends != 0, "round %d: %d ends in an empty mailbox", round, b.ends)
	}
}

// A session is granted nothing before it has acknowledged everything that was essential when events were last sent to
// it, also what did not fit into that reply.
func TestNothingIsGrantedBeforeAllIsHeard(t *testing.T) {
	b := newTestMailbox()
	for range 10_000 {
		b.Post(&Event{Kind: api.EventCacheInvalidation, Path: strings.Repeat("p", 500)})
	}
	stopIf(t, !b.IsAcknowledged(), "an event that was not sent counts as unacknowledged")
	replies := 0
	for {
		replies++
		told := b.TakeEvents(b.Received)
		last := told[len(told)-1].Sequence
		if b.Post(&Event{Kind: api.EventContentsModified}); b.IsAcknowledged() {
			t.Fatal("it counts as acknowledged too early")
		}
		if b.Acknowledge(last, last); b.IsAcknowledged() {
			break
		}
	}
	if want := b.essential; replies < 15 || b.Acked < want {
		t.Errorf("after %d replies %d is acknowledged, and %d was to be", replies, b.Acked, want)
	}
}

// The acknowledgement of a revocation waits for the lock's owner; receiving other events does not.
func TestReceivedIsNotAcknowledged(t *testing.T) {
	b := newTestMailbox()
	b.Post(&Event{Kind: api.EventLockLost})
	b.Post(&Event{Kind: api.EventCacheInvalidation})
	b.TakeEvents(b.Received)
	b.Acknowledge(2, 0)
	if len(b.Events) != 0 || b.Received != 2 || b.Acked != 0 || b.IsAcknowledged() {
		t.Errorf("%d events wait, received %d, acknowledged %d, heard %v", len(b.Events), b.Received, b.Acked, b.IsAcknowledged())
	}
	if b.Acknowledge(2, 2); !b.IsAcknowledged() {
		t.Error("everything is acknowledged, and does not count as such")
	}
}

// Events that were told aside are in the mailbox until they are acknowledged, so there are
// bounds: of their number, of their bytes, and of all mail of a principal.
func TestToldAsideIsBounded(t *testing.T) {
	tells := func(b *Mailbox, path string) (n int) {
		for n < 10_000 {
			b.Post(&Event{Kind: api.EventContentsModified, Path: path})
			if b.TakeAside(uint64(n)) == nil {
				break
			}
			n++
		}
		return n
	}
	equal(t, tells(newTestMailbox(), ""), maxToldAside, "tells of %d")
	if n := tells(newTestMailbox(), strings.Repeat("p", 1000)); n == 0 || n > maxToldAsideBytes/1000 {
		t.Errorf("tells of %d with long names", n)
	}
	crowded := newTestMailbox()
	crowded.all.Used.add("p", crowded.all.Limit/8+1)
	equal(t, tells(crowded, ""), 0, "tells of %d in a crowd")
}
