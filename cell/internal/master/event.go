package master

import "github.com/chubbylock/chubby/api"

// Event is an event on its way to one session (Chubby §2.5). Nobody changes it once it
// is in a mailbox.
type Event struct {
	Sequence    uint64 // counts up from 1 within a session and epoch
	Kind        api.EventKind
	Handle      api.HandleID // of events about a node
	Path        string
	Child       string         // of child events: its name
	Generation  api.Generation // of the contents, the instance or the lock that it is about
	Reason      api.EndReason  // of the end of a lock or a handle
	Explanation string         // for people
	Recall      bool           // of a conflicting lock: for one that is kept; not told to the program
}

// texts returns the length of an event's strings.
func (e *Event) texts() int { return len(e.Path) + len(e.Child) + len(e.Explanation) }

// maxEncoded is how long an event is on the wire at most, without its strings.
const maxEncoded = 64

// WireSize returns how long an event is on the wire at most.
func (e *Event) WireSize() int { return maxEncoded + e.texts() }
