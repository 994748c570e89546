package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// mail counts the bytes of events in mailboxes. A principal's sessions share one bound, so that many idle
// watchers of long paths do not fill the memory. epoch.mu guards it.
//
// Beyond the bound a mailbox acts as if full: its session learns that it missed events. Other principals are
// not affected.
type mail struct {
	limit   int    // bytes of one principal; the bounds below are parts of it
	used    tally  // bytes
	dropped func() // called for each dropped event
}

func newMail(dropped func()) *mail {
	return &mail{limit: maxPrincipalMail, used: newTally(), dropped: dropped}
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

func eventSize(e *Event) int { return eventBytes + e.texts() }

// hasRoom reports whether a principal's mail has room for an event that may be dropped.
func (l *mail) hasRoom(principal string, e *Event) bool {
	most := l.limit - l.limit/4
	if invalidates(e) {
		most = l.limit
	}
	return l.used.of[principal]+eventSize(e) <= most
}

// isCrowded reports whether a principal's clients have to acknowledge soon.
func (l *mail) isCrowded(principal string) bool { return l.used.of[principal] > l.limit/8 }

// isOver reports whether a principal has more mail than invalidations of all its copies explain. A session
// that then loses a lock gets no further lease: each loss adds mail.
func (l *mail) isOver(principal string) bool { return l.used.of[principal] > l.limit*maxMailFactor }

// maxMailFactor is that bound, times the limit: invalidations of maxPrincipalCopies take at most as many
// bytes again.
const maxMailFactor = 1 + maxPrincipalCopies/maxPrincipalMail

func (l *mail) add(principal string, bytes int) { l.used.add(principal, bytes) }

// publisher puts events into the mailboxes of the sessions they concern.
type publisher struct {
	epoch     *epoch
	boxes     *mailboxes
	handles   *handles
	queues    *queues
	recalls   *recalls
	holdTimes *holdTimes
	copyset   *copyset
}

// postTo posts a copy of an event about a handle to its session. It returns the event's number, 0 without a
// mailbox. epoch.mu is held.
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

// maxEncoded is the max length of an event on the wire, without strings.
const maxEncoded = 64

// WireSize returns the max length of an event on the wire.
func (e *Event) WireSize() int { return maxEncoded + e.texts() }

// tally counts something by principal, and in total. epoch.mu guards it.
type tally struct {
	of  map[string]int // without zeros
	all int
}

func newTally() tally { return tally{of: map[string]int{}} }

// add adds n, which may be negative, for a principal.
func (t *tally) add(principal string, n int) {
	if t.of[principal] += n; t.of[principal] == 0 {
		delete(t.of, principal)
	}
	t.all += n
}
