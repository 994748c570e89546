package tables

import (
	"errors"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
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

// NeedRead reports whether any of the events needs the right to read.
func (s EventSet) NeedRead() bool {
	return slices.ContainsFunc(api.EventKinds(), func(kind api.EventKind) bool { return s.Has(kind) && kind.NeedsRead() })
}

// Ticket is a place in the queue of one lock, for one request. Tickets of an earlier epoch come first.
type Ticket struct {
	Epoch  api.Epoch
	Number uint64
}

// Before reports whether a ticket comes first.
func (t Ticket) Before(other Ticket) bool {
	return t.Epoch < other.Epoch || t.Epoch == other.Epoch && t.Number < other.Number
}

// Handles is the table of the handles of one epoch. It is volatile: an earlier master's handle is recreated
// at its first use (Chubby §2.9, step 8), and stays closed once closed here. The locks and ephemeral nodes of
// a handle are in the replicated state, which alone decides what to release.
type Handles struct {
	Of     map[api.SessionID]*OwnHandles
	OnNode map[namespace.Ref]map[namespace.Owner]*OpenHandle // the open ones
	Used   Tally

	Refusing map[namespace.Owner]int // refusals of their Opens on the way to the log
}

// OwnHandles is what is known of the handles of one session.
type OwnHandles struct {
	ByID map[api.HandleID]*OpenHandle // open, or being opened
	// earlier are handles of earlier epochs used or closed in this one; closed, if not in ByID. At most
	// api.MaxHandles, as many as a client can have had.
	Earlier  map[api.HandleID]struct{}
	Declared session.Declared
	Refused  map[api.RequestNumber]error // Opens refused without an entry; at most api.MaxOutstanding
}

// OpenHandle is a handle, open or being opened.
type OpenHandle struct {
	Handle
	Principal string
	Open      bool
	Locks     bool           // a lock was asked for through it, so its Close is logged
	Checked   api.Generation // generation of its lock whose sequencer was shown here, or 0
	copies    int            // of its Open being served
	Logged    bool           // one went to the log, which answers all
	Told      bool           // it knows the waiters until now; see tellConflicts

	Looked, Tried bool // through it, since the node last changed
}

// WantsConflicts reports whether a handle was opened for conflicting requests.
func (one *OpenHandle) WantsConflicts() bool { return one.Events.Has(api.EventConflictingLock) }

func newHandles() *Handles {
	return &Handles{
		Of:     map[api.SessionID]*OwnHandles{},
		OnNode: map[namespace.Ref]map[namespace.Owner]*OpenHandle{},
		Used:   newTally(),

		Refusing: map[namespace.Owner]int{},
	}
}

// Own returns the record of a live session.
func (t *Handles) Own(id api.SessionID) *OwnHandles {
	own := t.Of[id]
	if own == nil {
		own = &OwnHandles{
			ByID: map[api.HandleID]*OpenHandle{}, Earlier: map[api.HandleID]struct{}{}, Refused: map[api.RequestNumber]error{},
		}
		t.Of[id] = own
	}
	return own
}

// Find returns a handle, open or being opened, or nil.
func (t *Handles) Find(owner namespace.Owner) *OpenHandle {
	if own := t.Of[owner.Session]; own != nil {
		return own.ByID[owner.Handle]
	}
	return nil
}

// Declare records a request's declaration, and forgets refusals that the client has received.
func (t *Handles) Declare(by session.Mutation) {
	own := t.Own(by.Session)
	own.Declared.Record(by)
	for number := range own.Refused {
		if own.Declared.Finished(number) {
			delete(own.Refused, number)
		}
	}
}

// Reserve enters a handle that is being opened; copies of the Open share it. allowed is the principal's
// quota, nil for an Open that was answered before. EndReservation removes the handle unless it is open by
// then.
func (t *Handles) Reserve(h Handle, principal string, allowed *int) (*OpenHandle, error) {
	own := t.Own(h.Owner.Session)
	one := own.ByID[h.Owner.Handle]
	if one == nil {
		if allowed != nil && len(own.ByID) >= api.MaxHandles {
			return nil, &refusal.Refusal{Cause: refusal.SessionHandles, Used: int64(len(own.ByID)), Allowed: api.MaxHandles}
		}
		if allowed != nil && t.Used.Of[principal] >= *allowed {
			return nil, &refusal.Refusal{
				Cause: refusal.HandleQuota, Principal: principal, Used: int64(t.Used.Of[principal]), Allowed: int64(*allowed),
			}
		}
		one = t.Enter(h, principal)
	}
	one.copies++
	return one, nil
}

// Refuse keeps the refusal of an Open without an entry until the client has it, so that copies get the same
// answer. The Open must never create a node: another master does not know of the refusal.
func (t *Handles) Refuse(by session.Mutation, because error) *api.Error {
	told := &api.Error{Code: api.CodeOf(because), Message: because.Error()}
	if e := (*api.Error)(nil); errors.As(because, &e) {
		told.Message = e.Message
	}
	told.Final = refusal.IsFinal(told.Code)
	t.Own(by.Session).Refused[by.Number] = told
	return told
}

// EndRefusal records that the log has answered a refusal, or never will.
func (t *Handles) EndRefusal(owner namespace.Owner) {
	if t.Refusing[owner]--; t.Refusing[owner] == 0 {
		delete(t.Refusing, owner)
	}
}

// EndReservation ends what Reserve began for one copy of an Open.
func (t *Handles) EndReservation(one *OpenHandle) {
	if one.copies--; one.copies == 0 && !one.Open && t.Find(one.Owner) == one {
		t.Remove(one)
	}
}

// Enter enters a handle that is not open.
func (t *Handles) Enter(h Handle, principal string) *OpenHandle {
	one := &OpenHandle{Handle: h, Principal: principal}
	t.Own(h.Owner.Session).ByID[h.Owner.Handle] = one
	t.Used.add(principal, 1)
	return one
}

// Bind opens a handle on a node.
func (t *Handles) Bind(one *OpenHandle, node namespace.Ref) {
	one.Open, one.Node = true, node
	if t.OnNode[node] == nil {
		t.OnNode[node] = map[namespace.Owner]*OpenHandle{}
	}
	t.OnNode[node][one.Owner] = one
}

// Get returns an open handle. It recreates an earlier epoch's handle without a quota check: it was allowed
// then.
func (t *Handles) Get(h Handle, epoch api.Epoch, principal string) (*OpenHandle, error) {
	own := t.Own(h.Owner.Session)
	one := own.ByID[h.Owner.Handle]
	if one != nil && one.Open && one.Node == h.Node {
		return one, nil
	}
	// A client that opens several nodes with one request number, at several masters, has a handle of one ID
	// on each; one is valid.
	if _, closed := own.Earlier[h.Owner.Handle]; closed || h.Epoch >= epoch || one != nil && one.Open {
		return nil, &refusal.Refusal{Cause: refusal.HandleClosed}
	}
	if len(own.Earlier) >= api.MaxHandles {
		return nil, &refusal.Refusal{Cause: refusal.HandlesFromFailOver, Used: int64(len(own.Earlier)), Allowed: api.MaxHandles}
	}
	own.Earlier[h.Owner.Handle] = struct{}{}
	if one == nil {
		one = t.Enter(h, principal)
	}
	t.Bind(one, h.Node)
	return one, nil
}

// Close closes a handle, or forgets one that is being opened. It reports whether the handle was open.
func (t *Handles) Close(owner namespace.Owner) (was bool) {
	one := t.Find(owner)
	if one == nil {
		return false
	}
	t.Remove(one)
	return one.Open
}

// Drop forgets at most most handles of an ended session, and reports whether that was all.
func (t *Handles) Drop(id api.SessionID, most int) (done bool) {
	own := t.Of[id]
	if own == nil {
		return true
	}
	for _, one := range own.ByID {
		if most--; most < 0 {
			return false
		}
		t.Remove(one)
	}
	delete(t.Of, id)
	return true
}

// Remove forgets a handle.
func (t *Handles) Remove(one *OpenHandle) {
	delete(t.Of[one.Owner.Session].ByID, one.Owner.Handle)
	t.Used.add(one.Principal, -1)
	if !one.Open {
		return
	}
	delete(t.OnNode[one.Node], one.Owner)
	if len(t.OnNode[one.Node]) == 0 {
		delete(t.OnNode, one.Node)
	}
}

// Count returns a session's number of handles, open or being opened.
func (t *Handles) Count(id api.SessionID) int {
	if own := t.Of[id]; own != nil {
		return len(own.ByID)
	}
	return 0
}

// Tally counts something by principal, and in total.
type Tally struct {
	Of  map[string]int // without zeros
	All int
}

func newTally() Tally { return Tally{Of: map[string]int{}} }

// add adds n, which may be negative, for a principal.
func (t *Tally) add(principal string, n int) {
	if t.Of[principal] += n; t.Of[principal] == 0 {
		delete(t.Of, principal)
	}
	t.All += n
}
