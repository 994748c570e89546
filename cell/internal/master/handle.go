package master

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// Handle is a client's copy of a handle, enough for a new master to recreate it (Chubby §2.3, §2.9 step 8).
type Handle struct {
	Owner        namespace.Owner
	Node         namespace.Ref
	Rights       namespace.Rights
	Ephemeral    bool
	Directory    bool
	Delay        time.Duration        // of its locks
	CachesLock   bool                 // its lock may be kept unused
	NoCache      bool                 // the client caches nothing it reads
	Epoch        api.Epoch            // of the master that made it
	Events       EventSet             // it was opened for
	Precondition raftfsm.Precondition // of SetSequencer, or zero
}

// Preconditions returns the handle's precondition as a list.
func (h Handle) Preconditions() []raftfsm.Precondition {
	if h.Precondition == (raftfsm.Precondition{}) {
		return nil
	}
	return []raftfsm.Precondition{h.Precondition}
}

// EventSet is a set of event kinds.
type EventSet uint64

// With returns the set with a kind added.
func (s EventSet) With(k api.EventKind) EventSet { return s | 1<<k }

// Has reports whether a kind is in the set.
func (s EventSet) Has(k api.EventKind) bool { return s&(1<<k) != 0 }

// Ticket is a place in the queue of one lock, for one request. Tickets of an earlier epoch come first.
type Ticket struct {
	Epoch  api.Epoch
	Number uint64
}

func (t Ticket) before(other Ticket) bool {
	return t.Epoch < other.Epoch || t.Epoch == other.Epoch && t.Number < other.Number
}
