package master

import (
	"slices"

	"github.com/chubbylock/chubby/api"
)

// mailbox is what one session has yet to be told, and its parked KeepAlive
// (Chubby §2.8). Events are numbered from 1 in each epoch. There are two answers
// to an event. The client has received it: it will not be told again, and what it
// told the client to drop from its cache is dropped. It is acknowledged: what it
// took away is not used any more. The second may be later by as long as the owner
// of a lost lock works on, and nothing but that lock waits for it.
//
// When too many events are waiting, or too many bytes of events in the mailboxes of
// the principal's sessions, those that come later are replaced by one event that says
// so, the marker. epoch.mu guards it.
type mailbox struct {
	mail      *mail  // of all sessions
	principal string // whose session it is
	bytes     int    // of events, as they are counted in mail

	events []*Event // not received, ascending by sequence
	progress
	ends   int    // events of handles that are invalid, among events
	marker uint64 // of the marker among events; 0 if there is none
	missed bool   // an event was dropped after the marker was told

	keptAlive
	usage *usage // nil if nobody counts it
}

// keptAlive is how a session is kept alive.
type keptAlive struct {
	calls  uint64 // KeepAlives of this epoch
	grant  uint64 // number of the newest grant made to the session
	asked  bool   // it was asked for a sign of life, and is granted its lease when it gives it
	parked *parked
}

// progress says how far the events of a mailbox have come, by their sequences.
type progress struct {
	last           uint64 // the newest event
	delivered      uint64 // the newest event that a reply has carried
	owed           uint64 // what delivered was when a call was answered: the client acknowledges it with the next
	received       uint64
	acked          uint64
	essential      uint64 // the newest essential event
	owedAtDelivery uint64 // what essential was when the latest reply was made
}

func newMailbox(l *mail, principal string) *mailbox { return &mailbox{mail: l, principal: principal} }

// discard drops everything, of a session that has ended.
func (b *mailbox) discard() {
	b.wakeCall()
	b.mail.add(b.principal, -b.bytes)
	b.events, b.bytes, b.ends = nil, 0, 0
}

// maxTold bounds the bytes of events in one reply. A session may have megabytes
// to be told at once, when many names that it has in its cache change together,
// and clients take messages of a limited size. The rest follows in the replies to
// the next KeepAlives, which are answered at once.
const maxTold = 256 << 10

// post queues an event, wakes the parked KeepAlive, and returns the event's
// number. What takes something from the client is never dropped; nor is the first
// event of an epoch. The end of a handle takes precedence over other events: no event
// follows it, so a client that missed it would wait without end. (As many of those wait
// as a session has handles; a client that opens and closes more, and does not listen,
// may miss some.) Of other events api.MaxEventQueue wait at most. All of these have to
// find room in the principal's mail.
//
// Of those that come then the client is only told that there were some. If the
// client was told that already, it may have looked again before this event: it is
// told once more, after it has received that.
func (b *mailbox) post(e *Event) uint64 {
	switch {
	case e.Kind.Essential():
		b.essential = b.last + 1
	case e.Kind == api.EventMasterFailedOver:
	case !b.hasRoom(e):
		b.mail.dropped()
		return b.dropEvent()
	}
	return b.add(e)
}

// hasRoom reports whether an event is accepted that may be dropped.
func (b *mailbox) hasRoom(e *Event) bool {
	return (len(b.events) < api.MaxEventQueue || invalidates(e) && b.ends < api.MaxHandles) && b.mail.hasRoom(b.principal, e)
}

// dropEvent takes note that an event was dropped.
func (b *mailbox) dropEvent() uint64 {
	switch {
	case b.marker > b.delivered:
		return b.last
	case b.marker > 0:
		b.missed = true
		return b.last
	default:
		//mutant: return b.last //by TestEventsOfSlowClient of ./cell
		return b.postMarker()
	}
}

// postMarker queues the marker.
func (b *mailbox) postMarker() uint64 {
	b.marker = b.add(&Event{Kind: api.EventLost, Explanation: "events were dropped because too many waited; look again"})
	return b.marker
}

func (b *mailbox) add(e *Event) uint64 {
	b.last++
	e.Sequence = b.last
	if invalidates(e) {
		b.ends++
	}
	b.bytes += eventSize(e)
	b.mail.add(b.principal, eventSize(e))
	b.events = append(b.events, e)
	b.wakeCall()
	return b.last
}

// invalidates reports whether an event says that a handle is invalid.
func invalidates(e *Event) bool { return e.Kind == api.EventHandleInvalid }

// acknowledge takes note of what the client has received and acknowledged.
func (b *mailbox) acknowledge(received, acked uint64) {
	received = max(received, acked)
	if received > b.delivered {
		return // what was never told cannot have been heard: a reply of another epoch is meant
	}
	for len(b.events) > 0 && b.events[0].Sequence <= received {
		b.removeFirst()
	}
	b.received, b.acked = max(b.received, received), max(b.acked, acked)
	if b.marker > 0 && b.marker <= b.received {
		again := b.missed
		b.marker, b.missed = 0, false
		if again {
			b.postMarker()
		}
	}
}

// removeFirst removes the first event, and its memory with it.
func (b *mailbox) removeFirst() {
	first := b.events[0]
	if invalidates(first) {
		b.ends--
	}
	b.bytes -= eventSize(first)
	b.mail.add(b.principal, -eventSize(first))
	b.events[0] = nil
	if b.events = b.events[1:]; len(b.events) == 0 {
		b.events = nil
	}
}

// isAcknowledged reports whether the client has acknowledged everything that calls were
// answered with, and everything essential that was waiting when one last was. Until
// then a KeepAlive extends nothing (decision 6).
func (b *mailbox) isAcknowledged() bool { return b.acked >= max(b.owed, b.owedAtDelivery) }

// after returns the events after one.
func (b *mailbox) after(sequence uint64) []*Event {
	if len(b.events) == 0 || sequence < b.events[0].Sequence {
		return b.events
	}
	return b.events[min(sequence-b.events[0].Sequence+1, uint64(len(b.events))):] // they have no gaps
}

// takeEvents returns what a call is answered with that has told of events up to that one, in
// a list of the caller's own: as many events as one reply holds.
func (b *mailbox) takeEvents(told uint64) []*Event {
	events := b.after(told)
	n, bytes := 0, 0
	for n < len(events) {
		if bytes += events[n].WireSize(); n > 0 && bytes > maxTold {
			break
		}
		b.delivered = max(b.delivered, events[n].Sequence)
		n++
	}
	//mutant: b.owedAtDelivery = b.essential
	b.owed, b.owedAtDelivery = b.delivered, b.essential
	return slices.Clone(events[:n])
}

// takeAside returns the events after one that is told, in a list of the caller's own, if a
// call may tell of all of them and wait on.
func (b *mailbox) takeAside(told uint64) []*Event {
	if len(b.events) > maxToldAside || b.mail.isCrowded(b.principal) {
		return nil
	}
	bytes := 0
	for _, e := range b.events {
		if bytes += e.WireSize(); bytes > maxToldAsideBytes || e.Sequence > told && !e.canBeToldAside() {
			return nil
		}
	}
	events := slices.Clone(b.after(told))
	if len(events) > 0 {
		b.delivered = max(b.delivered, events[len(events)-1].Sequence)
	}
	return events
}

// canBeToldAside reports whether nobody waits for the acknowledgement of an event.
func (e *Event) canBeToldAside() bool {
	return e.Kind.Subscribable() && e.Kind != api.EventConflictingLock // by which a lock that is kept is recalled
}

// park takes the place of the KeepAlive that was parked before.
func (b *mailbox) park() *parked {
	if b.parked != nil {
		b.parked.replace()
	}
	b.parked = &parked{}
	return b.parked
}

// wakeCall answers the parked KeepAlive now.
func (b *mailbox) wakeCall() {
	if b.parked != nil {
		b.parked.wake()
		b.parked = nil
	}
}

// unpark forgets a parked KeepAlive that woke by itself.
func (b *mailbox) unpark(p *parked) {
	if b.parked == p {
		b.parked = nil
	}
}

// mailboxes are those of all sessions.
type mailboxes struct {
	mail *mail
	byID map[api.SessionID]*mailbox
}
