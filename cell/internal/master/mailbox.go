package master

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// mailboxes is the mailboxes of an epoch. It counts the bytes of events in them: a principal's sessions share
// one bound, so that many idle watchers of long paths do not fill the memory. epoch.mu guards it.
//
// Beyond the bound a mailbox acts as if full: its session learns that it missed events. Other principals are
// not affected.
type mailboxes struct {
	byID    map[api.SessionID]*mailbox
	limit   int    // bytes of one principal; the bounds below are parts of it
	used    tally  // bytes
	dropped func() // called for each dropped event
}

func newMailboxes(dropped func()) *mailboxes {
	return &mailboxes{byID: map[api.SessionID]*mailbox{}, limit: maxPrincipalMail, used: newTally(), dropped: dropped}
}

func (l *mailboxes) add(id api.SessionID, principal string) {
	l.byID[id] = &mailbox{all: l, principal: principal}
}

// hasRoom reports whether a principal's mail has room for an event that may be dropped.
func (l *mailboxes) hasRoom(principal string, e *Event) bool {
	most := l.limit - l.limit/4
	if invalidates(e) {
		most = l.limit
	}
	return l.used.of[principal]+eventSize(e) <= most
}

// isCrowded reports whether a principal's clients have to acknowledge soon.
func (l *mailboxes) isCrowded(principal string) bool { return l.used.of[principal] > l.limit/8 }

// isOver reports whether a principal has more mail than invalidations of all its copies explain. A session
// that then loses a lock gets no further lease: each loss adds mail.
func (l *mailboxes) isOver(principal string) bool {
	return l.used.of[principal] > l.limit*maxMailFactor
}

// maxMailFactor is that bound, times the limit: invalidations of maxPrincipalCopies take at most as many
// bytes again.
const maxMailFactor = 1 + maxPrincipalCopies/maxPrincipalMail

// mailbox is one session's pending events and its parked KeepAlive (Chubby §2.8). Events count from 1 in each
// epoch. A client answers each twice. Received: it has the event, and has dropped what that invalidates in
// its cache. Acknowledged: it no longer uses what the event took away. Between the two, the owner of a lost
// lock may work on; only that lock waits.
//
// When too many events wait, or too many bytes for the principal, one event, the marker, replaces later ones.
// epoch.mu guards it.
type mailbox struct {
	all       *mailboxes
	principal string // of the session
	bytes     int    // of events, as counted in all

	events []*Event // not received, ascending by sequence
	progress
	ends   int    // how many of events end handles
	marker uint64 // its sequence among events, or 0
	missed bool   // an event was dropped after the marker's delivery

	keptAlive
	recalled map[*recall]uint64 // the event to acknowledge of each
}

// keptAlive is how a session is kept alive.
type keptAlive struct {
	calls  uint64 // KeepAlives of this epoch
	grant  uint64 // number of the session's newest grant
	asked  bool   // the next KeepAlive is a requested sign of life, and gets the lease
	parked Parked
}

// progress says how far the events of a mailbox have come, by their sequences.
type progress struct {
	last           uint64 // the newest event
	delivered      uint64 // the newest event in a reply
	owed           uint64 // delivered at the latest answer; the next call acknowledges it
	received       uint64
	acked          uint64
	essential      uint64 // the newest essential event
	owedAtDelivery uint64 // essential at the latest reply
}

// discard drops everything of an ended session.
func (b *mailbox) discard() {
	b.wakeCall()
	b.all.used.add(b.principal, -b.bytes)
	b.events, b.bytes, b.ends = nil, 0, 0
}

// maxTold bounds the bytes of events in one reply, because clients limit messages; a session may have
// megabytes when many cached names change. The next KeepAlives get the rest at once.
const maxTold = 256 << 10

// post queues an event, wakes the parked KeepAlive, and returns the event's number. It never drops an event
// that takes something away, or an epoch's first event. Ends of handles have precedence, because no later
// event replaces them: as many may wait as a session has handles. (A client that opens and closes more, and
// does not listen, may miss some.) Of others at most api.MaxEventQueue wait. The principal's mail bounds all
// of these.
//
// The marker stands for dropped events. Once it is delivered, the client may have looked before this event,
// so a second marker follows when the client has received the first.
func (b *mailbox) post(e *Event) uint64 {
	switch {
	case e.Kind.Essential():
		b.essential = b.last + 1
	case e.Kind == api.EventMasterFailedOver:
	case !b.hasRoom(e):
		b.all.dropped()
		return b.dropEvent()
	}
	return b.add(e)
}

// hasRoom reports whether a mailbox accepts an event that may be dropped.
func (b *mailbox) hasRoom(e *Event) bool {
	return (len(b.events) < api.MaxEventQueue || invalidates(e) && b.ends < api.MaxHandles) && b.all.hasRoom(b.principal, e)
}

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
	b.all.used.add(b.principal, eventSize(e))
	b.events = append(b.events, e)
	b.wakeCall()
	return b.last
}

// invalidates reports whether an event says that a handle is invalid.
func invalidates(e *Event) bool { return e.Kind == api.EventHandleInvalid }

// acknowledge records what the client has received and acknowledged.
func (b *mailbox) acknowledge(received, acked uint64) {
	received = max(received, acked)
	if received > b.delivered {
		return // numbers of another epoch
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

// removeFirst removes the first event, and frees its memory.
func (b *mailbox) removeFirst() {
	first := b.events[0]
	if invalidates(first) {
		b.ends--
	}
	b.bytes -= eventSize(first)
	b.all.used.add(b.principal, -eventSize(first))
	b.events[0] = nil
	if b.events = b.events[1:]; len(b.events) == 0 {
		b.events = nil
	}
}

// isAcknowledged reports whether the client has acknowledged all events of answered calls, and the essential
// ones pending at the last answer. Until then a KeepAlive extends nothing (decision 6).
func (b *mailbox) isAcknowledged() bool { return b.acked >= max(b.owed, b.owedAtDelivery) }

// after returns the events after a sequence.
func (b *mailbox) after(sequence uint64) []*Event {
	if len(b.events) == 0 || sequence < b.events[0].Sequence {
		return b.events
	}
	return b.events[min(sequence-b.events[0].Sequence+1, uint64(len(b.events))):] // sequences have no gaps
}

// takeEvents returns a copy of the events after told for a call's answer, as many as fit.
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

// Bounds of events told before the answer. They wait in the mailbox for the next call's acknowledgement.
const (
	maxToldAside      = 32
	maxToldAsideBytes = 16 << 10
)

// takeAside returns a copy of the events after told, if a waiting call may tell all of them.
func (b *mailbox) takeAside(told uint64) []*Event {
	if len(b.events) > maxToldAside || b.all.isCrowded(b.principal) {
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

// canBeToldAside reports whether nothing waits for the acknowledgement of an event.
func (e *Event) canBeToldAside() bool {
	return e.Kind.Subscribable() && e.Kind != api.EventConflictingLock // it recalls a kept lock
}

// Parked is a KeepAlive that waits. Its methods do not wait.
type Parked interface {
	Wake()    // there are events, or nothing to wait for
	Replace() // a newer KeepAlive has taken its place
}

// park replaces the parked KeepAlive.
func (b *mailbox) park(p Parked) {
	if b.parked != nil {
		b.parked.Replace()
	}
	b.parked = p
}

// wakeCall has the parked KeepAlive answered now.
func (b *mailbox) wakeCall() {
	if b.parked != nil {
		b.parked.Wake()
		b.parked = nil
	}
}

// unpark forgets a parked KeepAlive that woke by itself.
func (b *mailbox) unpark(p Parked) {
	if b.parked == p {
		b.parked = nil
	}
}

// recalls is the locks that a TryAcquire or Delete asks back from holders that may keep them unused (decision
// 22). A client acknowledges the event when it has given the lock back, after a short wait, or at once if the
// lock is in use. epoch.mu guards it.
type recalls map[namespace.Ref]*recall

// recall is one lock that is asked back.
type recall struct {
	lock  namespace.Ref
	until session.Instant // end of the wait
	of    []*mailbox      // of its holders' sessions
	left  int             // of these, without an answer
	done  chan struct{}   // closed when the lock is free, or all holders have answered
}

// acknowledge records a session's acknowledgement, and returns its steps.
func (t recalls) acknowledge(box *mailbox, acked uint64) (steps int) {
	for r, sequence := range box.recalled {
		if steps++; acked >= sequence {
			delete(box.recalled, r)
			if r.left--; r.left == 0 {
				t.end(r)
			}
		}
	}
	return steps
}

// end ends a recall, if it has not ended: its lock is free, or all holders have answered. r may be nil.
func (t recalls) end(r *recall) {
	if r == nil || t[r.lock] != r {
		return
	}
	delete(t, r.lock)
	//mutant: for _, box := range r.of[:0] {
	for _, box := range r.of { // else one that acknowledges nothing would keep them all
		delete(box.recalled, r)
	}
	close(r.done)
}
