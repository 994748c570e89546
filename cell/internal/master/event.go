package master

import "github.com/chubbylock/chubby/api"

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
