package master

import "github.com/chubbylock/chubby/api"

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
