package tables

import (
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// Mailboxes is the mailboxes of an epoch. It counts the bytes of events in them: a principal's sessions share
// one bound, so that many idle watchers of long paths do not fill the memory.
//
// Beyond the bound a mailbox acts as if full: its session learns that it missed events. Other principals are
// not affected.
type Mailboxes struct {
	ByID    map[api.SessionID]*Mailbox
	Limit   int    // bytes of one principal; the bounds below are parts of it
	Used    Tally  // bytes
	dropped func() // called for each dropped event
}

func newMailboxes(dropped func()) *Mailboxes {
	return &Mailboxes{ByID: map[api.SessionID]*Mailbox{}, Limit: maxPrincipalMail, Used: newTally(), dropped: dropped}
}

// Add makes the mailbox of a session.
func (l *Mailboxes) Add(id api.SessionID, principal string) {
	l.ByID[id] = &Mailbox{all: l, Principal: principal}
}

// hasRoom reports whether a principal's mail has room for an event that may be dropped.
func (l *Mailboxes) hasRoom(principal string, e *Event) bool {
	most := l.Limit - l.Limit/4
	if invalidates(e) {
		most = l.Limit
	}
	return l.Used.Of[principal]+e.Size() <= most
}

// isCrowded reports whether a principal's clients have to acknowledge soon.
func (l *Mailboxes) isCrowded(principal string) bool { return l.Used.Of[principal] > l.Limit/8 }

// IsOver reports whether a principal has more mail than invalidations of all its copies explain. A session
// that then loses a lock gets no further lease: each loss adds mail.
func (l *Mailboxes) IsOver(principal string) bool {
	return l.Used.Of[principal] > l.Limit*maxMailFactor
}

// maxMailFactor is that bound, times the limit: invalidations of maxPrincipalCopies take at most as many
// bytes again.
const maxMailFactor = 1 + maxPrincipalCopies/maxPrincipalMail

// Mailbox is one session's pending events and its parked KeepAlive (Chubby §2.8). Events count from 1 in each
// epoch. A client answers each twice. Received: it has the event, and has dropped what that invalidates in
// its cache. Acknowledged: it no longer uses what the event took away. Between the two, the owner of a lost
// lock may work on; only that lock waits.
//
// When too many events wait, or too many bytes for the principal, one event, the marker, replaces later ones.
type Mailbox struct {
	all       *Mailboxes
	Principal string // of the session
	bytes     int    // of events, as counted in all

	Events []*Event // not received, ascending by sequence
	progress
	ends   int    // how many of events end handles
	marker uint64 // its sequence among events, or 0
	missed bool   // an event was dropped after the marker's delivery

	keptAlive
	Recalled map[*Recall]uint64 // the event to acknowledge of each
}

// keptAlive is how a session is kept alive.
type keptAlive struct {
	Calls  uint64        // KeepAlives of this epoch
	Grant  uint64        // number of the session's newest grant
	Lease  time.Duration // of that; 0 before the first of this epoch
	Asked  bool          // the next KeepAlive is a requested sign of life, and gets the lease
	Parked Parked
}

// progress says how far the events of a mailbox have come, by their sequences.
type progress struct {
	last           uint64 // the newest event
	delivered      uint64 // the newest event in a reply
	owed           uint64 // delivered at the latest answer; the next call acknowledges it
	Received       uint64
	Acked          uint64
	essential      uint64 // the newest essential event
	owedAtDelivery uint64 // essential at the latest reply
}

// Discard drops everything of an ended session.
func (b *Mailbox) Discard() {
	b.WakeCall()
	b.all.Used.add(b.Principal, -b.bytes)
	b.Events, b.bytes, b.ends = nil, 0, 0
}

// maxTold bounds the bytes of events in one reply, because clients limit messages; a session may have
// megabytes when many cached names change. The next KeepAlives get the rest at once.
const maxTold = 256 << 10

// Post queues an event, wakes the parked KeepAlive, and returns the event's number. It never drops an event
// that takes something away, or an epoch's first event. Ends of handles have precedence, because no later
// event replaces them: as many may wait as a session has handles. (A client that opens and closes more, and
// does not listen, may miss some.) Of others at most api.MaxEventQueue wait. The principal's mail bounds all
// of these.
//
// The marker stands for dropped events. Once it is delivered, the client may have looked before this event,
// so a second marker follows when the client has received the first.
func (b *Mailbox) Post(e *Event) uint64 {
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
func (b *Mailbox) hasRoom(e *Event) bool {
	return (len(b.Events) < api.MaxEventQueue || invalidates(e) && b.ends < api.MaxHandles) && b.all.hasRoom(b.Principal, e)
}

func (b *Mailbox) dropEvent() uint64 {
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

func (b *Mailbox) postMarker() uint64 {
	b.marker = b.add(&Event{Kind: api.EventLost, Explanation: "events were dropped because too many waited; look again"})
	return b.marker
}

func (b *Mailbox) add(e *Event) uint64 {
	b.last++
	e.Sequence = b.last
	if invalidates(e) {
		b.ends++
	}
	b.bytes += e.Size()
	b.all.Used.add(b.Principal, e.Size())
	b.Events = append(b.Events, e)
	b.WakeCall()
	return b.last
}

// invalidates reports whether an event says that a handle is invalid.
func invalidates(e *Event) bool { return e.Kind == api.EventHandleInvalid }

// Acknowledge records what the client has received and acknowledged.
func (b *Mailbox) Acknowledge(received, acked uint64) {
	received = max(received, acked)
	if received > b.delivered {
		return // numbers of another epoch
	}
	for len(b.Events) > 0 && b.Events[0].Sequence <= received {
		b.removeFirst()
	}
	b.Received, b.Acked = max(b.Received, received), max(b.Acked, acked)
	if b.marker > 0 && b.marker <= b.Received {
		again := b.missed
		b.marker, b.missed = 0, false
		if again {
			b.postMarker()
		}
	}
}

// removeFirst removes the first event, and frees its memory.
func (b *Mailbox) removeFirst() {
	first := b.Events[0]
	if invalidates(first) {
		b.ends--
	}
	b.bytes -= first.Size()
	b.all.Used.add(b.Principal, -first.Size())
	b.Events[0] = nil
	if b.Events = b.Events[1:]; len(b.Events) == 0 {
		b.Events = nil
	}
}

// IsAcknowledged reports whether the client has acknowledged all events of answered calls, and the essential
// ones pending at the last answer. Until then a KeepAlive extends nothing (decision 6).
func (b *Mailbox) IsAcknowledged() bool { return b.Acked >= max(b.owed, b.owedAtDelivery) }

// After returns the events after a sequence.
func (b *Mailbox) After(sequence uint64) []*Event {
	if len(b.Events) == 0 || sequence < b.Events[0].Sequence {
		return b.Events
	}
	return b.Events[min(sequence-b.Events[0].Sequence+1, uint64(len(b.Events))):] // sequences have no gaps
}

// TakeEvents returns a copy of the events after told for a call's answer, as many as fit.
func (b *Mailbox) TakeEvents(told uint64) []*Event {
	events := b.After(told)
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

// TakeAside returns a copy of the events after told, if a waiting call may tell all of them.
func (b *Mailbox) TakeAside(told uint64) []*Event {
	if len(b.Events) > maxToldAside || b.all.isCrowded(b.Principal) {
		return nil
	}
	bytes := 0
	for _, e := range b.Events {
		if bytes += e.WireSize(); bytes > maxToldAsideBytes || e.Sequence > told && !e.canBeToldAside() {
			return nil
		}
	}
	events := slices.Clone(b.After(told))
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

// Park replaces the parked KeepAlive.
func (b *Mailbox) Park(p Parked) {
	if b.Parked != nil {
		b.Parked.Replace()
	}
	b.Parked = p
}

// WakeCall has the parked KeepAlive answered now.
func (b *Mailbox) WakeCall() {
	if b.Parked != nil {
		b.Parked.Wake()
		b.Parked = nil
	}
}

// Unpark forgets a parked KeepAlive that woke by itself.
func (b *Mailbox) Unpark(p Parked) {
	if b.Parked == p {
		b.Parked = nil
	}
}

// Recalls is the locks that a TryAcquire or Delete asks back from holders that may keep them unused (decision
// 22). A client acknowledges the event when it has given the lock back, after a short wait, or at once if the
// lock is in use.
type Recalls map[namespace.Ref]*Recall

// Recall is one lock that is asked back.
type Recall struct {
	Lock  namespace.Ref
	Until session.Instant // end of the wait
	Of    []*Mailbox      // of its holders' sessions
	Left  int             // of these, without an answer
	Done  chan struct{}   // closed when the lock is free, or all holders have answered
}

// Acknowledge records a session's acknowledgement, and returns its steps.
func (t Recalls) Acknowledge(box *Mailbox, acked uint64) (steps int) {
	for r, sequence := range box.Recalled {
		if steps++; acked >= sequence {
			delete(box.Recalled, r)
			if r.Left--; r.Left == 0 {
				t.End(r)
			}
		}
	}
	return steps
}

// End ends a recall, if it has not ended: its lock is free, or all holders have answered. r may be nil.
func (t Recalls) End(r *Recall) {
	if r == nil || t[r.Lock] != r {
		return
	}
	delete(t, r.Lock)
	//mutant: for _, box := range r.Of[:0] {
	for _, box := range r.Of { // else one that acknowledges nothing would keep them all
		delete(box.Recalled, r)
	}
	close(r.Done)
}

// Bounds of a principal's mail. 256 MiB hold a million usual events. A quarter is for ends of handles,
// because no later event repeats them.
//
// Events that the master waits for are always accepted. Copies bound invalidations; a session that does not
// acknowledge lost locks is ended (maxMailFactor).
const (
	maxPrincipalMail = 256 << 20
	eventBytes       = 192 // of an event without its strings, with its place in a mailbox
)

// Event is an event for one session (Chubby §2.5). It never changes in a mailbox.
type Event struct {
	Sequence    uint64 // from 1 within a session and epoch
	Kind        api.EventKind
	Handle      api.HandleID // of node events
	Path        string
	Child       string         // the child's name, in child events
	Generation  api.Generation // of contents, instance or lock
	Reason      api.EndReason  // for an end of a lock or handle
	Explanation string         // for people
	Recall      bool           // asks a kept lock back, in an event of a conflicting lock; not for the program
}

func (e *Event) texts() int { return len(e.Path) + len(e.Child) + len(e.Explanation) }

// Size returns the bytes of which an event is counted in a mailbox.
func (e *Event) Size() int { return eventBytes + e.texts() }

// MaxEncoded is the max length of an event on the wire, without strings.
const MaxEncoded = 64

// WireSize returns the max length of an event on the wire.
func (e *Event) WireSize() int { return MaxEncoded + e.texts() }
