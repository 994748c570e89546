package api

import "fmt"

// EventKind is what an event tells (Chubby §2.5).
type EventKind uint8

// The events. Those that say something about one node carry its handle.
const (
	EventContentsModified  EventKind = 1
	EventChildAdded        EventKind = 2
	EventChildRemoved      EventKind = 3
	EventChildModified     EventKind = 4
	EventMasterFailedOver  EventKind = 5 // others may have been lost: look again
	EventHandleInvalid     EventKind = 6
	EventLockLost          EventKind = 7 // the lock held through this handle is not held any more
	EventLockAcquired      EventKind = 8
	EventConflictingLock   EventKind = 9  // somebody waits for a lock that this handle holds
	EventLost              EventKind = 10 // the client fell behind: look again
	EventCacheInvalidation EventKind = 11 // for the client library, never shown to applications
	EventSessionEnded      EventKind = 12 // somebody else ended the session; for the client library
	EventLockVacant        EventKind = 13 // nobody holds the lock any more: it was released, or its holder failed
)

var eventNames = map[EventKind]string{
	EventContentsModified: "contents-modified", EventChildAdded: "child-added", EventChildRemoved: "child-removed",
	EventChildModified: "child-modified", EventMasterFailedOver: "master-failed-over", EventHandleInvalid: "handle-invalid",
	EventLockLost: "lock-lost", EventLockAcquired: "lock-acquired", EventConflictingLock: "conflicting-lock-request",
	EventLost: "events-lost", EventCacheInvalidation: "cache-invalidation",
	EventSessionEnded: "session-ended", EventLockVacant: "lock-vacant",
}

// Event is one thing that happened to a node that is open (Chubby §2.5). It is
// delivered after it can be seen: who reacts to it by reading sees what it tells
// of, or newer.
type Event struct {
	Kind        EventKind
	Path        string     // of the node whose handle asked for events
	Child       string     // of child events: the child's name within Path
	Generation  Generation // of the contents, the lock, or the instance it is about
	Reason      EndReason  // of handle-invalid and lock-lost
	Explanation string     // for people
}

// String names the event in lower case, words joined by dashes.
func (k EventKind) String() string {
	if name, ok := eventNames[k]; ok {
		return name
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// ParseEventKind reads what String writes.
func ParseEventKind(text string) (EventKind, error) {
	for kind, name := range eventNames {
		if name == text {
			return kind, nil
		}
	}
	return 0, Errorf(InvalidArgument, "%q is no kind of event", text)
}

// Subscribable reports whether a handle can be opened for events of this kind;
// the others are told to everybody they concern.
func (k EventKind) Subscribable() bool {
	switch k {
	case EventContentsModified, EventChildAdded, EventChildRemoved, EventChildModified, EventLockAcquired, EventLockVacant, EventConflictingLock:
		return true
	case EventMasterFailedOver, EventHandleInvalid, EventLockLost, EventLost, EventCacheInvalidation, EventSessionEnded:
	}
	return false
}

// EndReason says why a session, or a lock with it, came to its end.
type EndReason uint8

// The reasons.
const (
	ByClose    EndReason = 1 // its owner ended it
	ByExpiry   EndReason = 2 // its lease ran out
	ByOperator EndReason = 3 // an operator ended it
	ByBreak    EndReason = 4 // an operator broke the lock
	ByDeletion EndReason = 5 // the node is gone
	ByRestore  EndReason = 6 // the cell was restored from a backup
)

// String names the reason in lower case.
func (r EndReason) String() string {
	names := [...]string{"", "closed", "expired", "ended", "broken", "deleted", "voided"}
	if int(r) < len(names) && r != 0 {
		return names[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
