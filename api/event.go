package api

import "fmt"

// EventKind is what an event reports (Chubby §2.5). Each kind has a row in
// eventRows, from which cell, client and chubbyctl work.
type EventKind uint8

// The numbers of the kinds, which cross the wire.
const (
	EventContentsModified  EventKind = 1
	EventChildAdded        EventKind = 2
	EventChildRemoved      EventKind = 3
	EventChildModified     EventKind = 4
	EventMasterFailedOver  EventKind = 5 // others may have been lost: look again
	EventHandleInvalid     EventKind = 6
	EventLockLost          EventKind = 7 // the lock held through this handle is not held any more
	EventLockAcquired      EventKind = 8
	EventConflictingLock   EventKind = 9  // another waits for a lock that this handle holds; Explanation is its Reason
	EventLost              EventKind = 10 // the client fell behind: look again
	EventCacheInvalidation EventKind = 11 // for the client library, never shown to applications
	EventSessionEnded      EventKind = 12 // an operator ended the session; for the client library
	EventLockVacant        EventKind = 13 // the lock has no holder any more: it was released, or its holder failed
)

// eventRow is what holds for all events of one kind.
type eventRow struct {
	kind EventKind
	name string
	// Handles are opened for events of this kind, and only these handles get them.
	// Events of the other kinds go to every session that they concern.
	subscribable bool
	needsRead    bool // they show what only principals with the right to read may see
	ofChild      bool // they are about a child of the node, which Event.Child names
	// The master waits until the client has received them, or acknowledged them, so a
	// mailbox never drops them.
	essential bool
}

// eventRows has a row for each kind, in the order in which they are shown to people.
// Nothing writes to it.
var eventRows = []eventRow{
	{kind: EventContentsModified, name: "contents-modified", subscribable: true, needsRead: true},
	{kind: EventLockAcquired, name: "lock-acquired", subscribable: true},
	{kind: EventLockVacant, name: "lock-vacant", subscribable: true},
	{kind: EventConflictingLock, name: "conflicting-lock-request", subscribable: true},
	{kind: EventChildAdded, name: "child-added", subscribable: true, needsRead: true, ofChild: true},
	{kind: EventChildRemoved, name: "child-removed", subscribable: true, needsRead: true, ofChild: true},
	{kind: EventChildModified, name: "child-modified", subscribable: true, needsRead: true, ofChild: true},
	{kind: EventMasterFailedOver, name: "master-failed-over"},
	{kind: EventHandleInvalid, name: "handle-invalid"},
	{kind: EventLockLost, name: "lock-lost", essential: true},
	{kind: EventLost, name: "events-lost"},
	{kind: EventCacheInvalidation, name: "cache-invalidation", essential: true},
	{kind: EventSessionEnded, name: "session-ended", essential: true},
}

// EventKinds returns every kind, in the order in which they are shown to people.
func EventKinds() []EventKind {
	kinds := make([]EventKind, len(eventRows))
	for i, row := range eventRows {
		kinds[i] = row.kind
	}
	return kinds
}

// row returns the row of a kind, which is empty for one that this version does
// not know.
func (k EventKind) row() eventRow {
	for _, row := range eventRows {
		if row.kind == k {
			return row
		}
	}
	return eventRow{}
}

// Event is one thing that happened to a node that is open (Chubby §2.5). It is
// delivered after the change can be read: a client that reads when it gets the event
// sees that change, or a newer one.
type Event struct {
	Kind        EventKind
	Path        string     // of the node whose handle asked for events
	Child       string     // of child events: the child's name within Path
	Generation  Generation // of the contents, the lock, or the instance it is about
	Reason      EndReason  // of handle-invalid and lock-lost
	Explanation string     // for people
}

// Known reports whether this version has events of this kind. A newer master may
// send others.
func (k EventKind) Known() bool { return k.row().kind != 0 }

// String names the event in lower case, words joined by dashes.
func (k EventKind) String() string {
	if row := k.row(); row.name != "" {
		return row.name
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// UnmarshalText reads what String writes.
func (k *EventKind) UnmarshalText(text []byte) error {
	for _, row := range eventRows {
		if row.name == string(text) {
			*k = row.kind
			return nil
		}
	}
	return Errorf(InvalidArgument, "%q is no kind of event", text)
}

// Subscribable reports whether a handle can be opened for events of this kind.
// Events of the other kinds go to every session that they concern.
func (k EventKind) Subscribable() bool { return k.row().subscribable }

// NeedsRead reports whether events of this kind show what only principals with the
// right to read the node may see.
func (k EventKind) NeedsRead() bool { return k.row().needsRead }

// OfChild reports whether events of this kind are about a child of the node.
func (k EventKind) OfChild() bool { return k.row().ofChild }

// Essential reports whether the master waits until the client has received events
// of this kind, or has acknowledged them. They are never dropped.
func (k EventKind) Essential() bool { return k.row().essential }

// EndReason is why a session, or the hold of a lock, has ended.
type EndReason uint8

// The reasons, whose numbers cross the wire.
const (
	ByClose    EndReason = 1 // its owner ended it
	ByExpiry   EndReason = 2 // its lease ran out
	ByOperator EndReason = 3 // an operator ended it
	ByBreak    EndReason = 4 // an operator broke the lock
	ByDeletion EndReason = 5 // the node is gone
	ByRestore  EndReason = 6 // the cell was restored from a backup
	ByFailOver EndReason = 7 // its client did not return to the new master after a fail-over, and its lease ran out
)

// String names the reason in lower case.
func (r EndReason) String() string {
	names := [...]string{"", "closed", "expired", "ended", "broken", "deleted", "voided", "lost in a fail-over"}
	if int(r) < len(names) && r != 0 {
		return names[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
