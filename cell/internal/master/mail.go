package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// mail counts the bytes of the events that wait in mailboxes. All sessions of one
// principal share one bound, so that many watchers that do not listen, of nodes with
// long paths, do not take the master's memory. epoch.mu guards it.
//
// A mailbox refuses what does not fit here as it does when it is full: the session is
// told that it missed events. That happens to sessions of the principal that is at its
// bound, and to no others.
type mail struct {
	limit   int    // bytes of one principal's events; the bounds below are parts of it
	used    tally  // bytes
	dropped func() // is told of each event that was dropped
}

func newMail(dropped func()) *mail {
	return &mail{limit: maxPrincipalMail, used: newTally(), dropped: dropped}
}

// Of a principal's mail. A bound of 256 MiB is a million events of usual length. A
// quarter of it is kept for the ends of handles, because no later event tells of those.
//
// What the master waits for is counted and always accepted: it is bounded elsewhere.
// Invalidations are bounded by the copies that they invalidate, and losses of locks
// end a session that does not listen (maxMailFactor).
const (
	maxPrincipalMail = 256 << 20
	eventBytes       = 192 // of an event without its strings, and its place in a mailbox
)

// eventSize returns how many bytes an event takes here.
func eventSize(e *Event) int { return eventBytes + e.texts() }

// hasRoom reports whether a principal's mail has room for an event that may be dropped.
func (l *mail) hasRoom(principal string, e *Event) bool {
	most := l.limit - l.limit/4
	if invalidates(e) {
		most = l.limit
	}
	return l.used.of[principal]+eventSize(e) <= most
}

// isCrowded reports whether a principal has so much mail that its clients have to say soon
// what they have received.
func (l *mail) isCrowded(principal string) bool { return l.used.of[principal] > l.limit/8 }

// isOver reports whether a principal has more mail than even invalidations of
// everything that it may have in its caches explain. A session that loses a lock then
// is not extended any more: with each loss it would take more.
func (l *mail) isOver(principal string) bool { return l.used.of[principal] > l.limit*maxMailFactor }

// maxMailFactor is that bound as a multiple of the other: invalidations of
// maxPrincipalCopies take as many bytes again at most.
const maxMailFactor = 1 + maxPrincipalCopies/maxPrincipalMail

func (l *mail) add(principal string, bytes int) { l.used.add(principal, bytes) }

// publisher puts events into the mailboxes of those whom they concern.
type publisher struct {
	epoch     *epoch
	boxes     *mailboxes
	handles   *handles
	queues    *queues
	recalls   *recalls
	holdTimes *holdTimes
	copyset   *copyset
}

// postTo puts an event about a handle into its session's mailbox and returns its
// number there, 0 if the session has none. The event is copied. epoch.mu is held.
func (p *publisher) postTo(to namespace.Owner, ref namespace.Ref, kind api.EventKind, e *Event) uint64 {
	box := p.boxes.byID[to.Session]
	if box == nil {
		return 0
	}
	return box.post(&Event{
		Kind: kind, Handle: to.Handle, Path: p.epoch.path(ref.Name), Child: e.Child,
		Generation: e.Generation, Reason: e.Reason, Explanation: e.Explanation, Recall: e.Recall,
	})
}
