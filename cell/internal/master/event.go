package master

import "github.com/chubbylock/chubby/api"

// Event is an event on its way to one session (Chubby §2.5). It does not change once it is in a mailbox.
type Event struct {
	Sequence    uint64 // counts up from 1 within a session and epoch
	Kind        api.EventKind
	Handle      api.HandleID // of events about a node
	Path        string
	Child       string         // the child's name, in child events
	Generation  api.Generation // of the contents, the instance or the lock
	Reason      api.EndReason  // of the end of a lock or a handle
	Explanation string         // for people
	Recall      bool           // of a conflicting lock: asks for a kept lock back; the program does not see it
}

// texts returns the length of an event's strings.
func (e *Event) texts() int { return len(e.Path) + len(e.Child) + len(e.Explanation) }

// maxEncoded is the max length of an event on the wire, without its strings.
const maxEncoded = 64

// WireSize returns the max length of an event on the wire.
func (e *Event) WireSize() int { return maxEncoded + e.texts() }
