package master

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

func (t Ticket) before(other Ticket) bool {
	return t.Epoch < other.Epoch || t.Epoch == other.Epoch && t.Number < other.Number
}

// handles is the table of the handles of one epoch. It is volatile: an earlier master's handle is recreated
// at its first use (Chubby §2.9, step 8), and stays closed once closed here. The locks and ephemeral nodes of
// a handle are in the replicated state, which alone decides what to release. epoch.mu guards it.
type handles struct {
	of     map[api.SessionID]*ownHandles
	onNode map[namespace.Ref]map[namespace.Owner]*openHandle // the open ones
	used   tally

	refusing map[namespace.Owner]int // refusals of their Opens on the way to the log
}

type ownHandles struct {
	byID map[api.HandleID]*openHandle // open, or being opened
	// earlier are handles of earlier epochs used or closed in this one; closed, if not in byID. At most
	// api.MaxHandles, as many as a client can have had.
	earlier  map[api.HandleID]struct{}
	declared session.Declared
	refused  map[api.RequestNumber]error // Opens refused without an entry; at most api.MaxOutstanding
}

// openHandle is a handle, open or being opened.
type openHandle struct {
	Handle
	principal string
	open      bool
	locks     bool           // a lock was asked for through it, so its Close is logged
	checked   api.Generation // generation of its lock whose sequencer was shown here, or 0
	copies    int            // of its Open being served
	logged    bool           // one went to the log, which answers all
	told      bool           // it knows the waiters until now; see tellConflicts

	looked, tried bool // through it, since the node last changed
}

// wantsConflicts reports whether a handle was opened for conflicting requests.
func (one *openHandle) wantsConflicts() bool { return one.Events.Has(api.EventConflictingLock) }

// hearsOf reports whether a holder gets the event for a waiter: not for its own request, and for a quiet one
// only if it may keep the lock.
func (one *openHandle) hearsOf(w *waiter) bool {
	if w.offered && w.owner() == one.Owner {
		return false
	}
	//mutant: return true
	return !w.quiet || one.CachesLock
}

func newHandles() *handles {
	return &handles{
		of:     map[api.SessionID]*ownHandles{},
		onNode: map[namespace.Ref]map[namespace.Owner]*openHandle{},
		used:   newTally(),

		refusing: map[namespace.Owner]int{},
	}
}

// own returns the record of a live session.
func (t *handles) own(id api.SessionID) *ownHandles {
	own := t.of[id]
	if own == nil {
		own = &ownHandles{byID: map[api.HandleID]*openHandle{}, earlier: map[api.HandleID]struct{}{}, refused: map[api.RequestNumber]error{}}
		t.of[id] = own
	}
	return own
}

// find returns a handle, open or being opened, or nil.
func (t *handles) find(owner namespace.Owner) *openHandle {
	if own := t.of[owner.Session]; own != nil {
		return own.byID[owner.Handle]
	}
	return nil
}

// declare records a request's declaration, and forgets refusals that the client has received.
func (t *handles) declare(by session.Mutation) {
	own := t.own(by.Session)
	own.declared.Record(by)
	for number := range own.refused {
		if own.declared.Finished(number) {
			delete(own.refused, number)
		}
	}
}

// reserve enters a handle that is being opened; copies of the Open share it. allowed is the principal's
// quota, nil for an Open that was answered before. endReservation removes the handle unless it is open by
// then.
func (t *handles) reserve(h Handle, principal string, allowed *int) (*openHandle, error) {
	own := t.own(h.Owner.Session)
	one := own.byID[h.Owner.Handle]
	if one == nil {
		if allowed != nil && len(own.byID) >= api.MaxHandles {
			return nil, &refusal.Refusal{Cause: refusal.SessionHandles, Used: int64(len(own.byID)), Allowed: api.MaxHandles}
		}
		if allowed != nil && t.used.of[principal] >= *allowed {
			return nil, &refusal.Refusal{Cause: refusal.HandleQuota, Principal: principal, Used: int64(t.used.of[principal]), Allowed: int64(*allowed)}
		}
		one = t.enter(h, principal)
	}
	one.copies++
	return one, nil
}

// refuse keeps the refusal of an Open without an entry until the client has it, so that copies get the same
// answer. The Open must never create a node: another master does not know of the refusal.
func (t *handles) refuse(by session.Mutation, because error) *api.Error {
	told := &api.Error{Code: api.CodeOf(because), Message: because.Error()}
	if e := (*api.Error)(nil); errors.As(because, &e) {
		told.Message = e.Message
	}
	told.Final = refusal.IsFinal(told.Code)
	t.own(by.Session).refused[by.Number] = told
	return told
}

// endRefusal records that the log has answered a refusal, or never will.
func (t *handles) endRefusal(owner namespace.Owner) {
	if t.refusing[owner]--; t.refusing[owner] == 0 {
		delete(t.refusing, owner)
	}
}

func (t *handles) endReservation(one *openHandle) {
	if one.copies--; one.copies == 0 && !one.open && t.find(one.Owner) == one {
		t.remove(one)
	}
}

func (t *handles) enter(h Handle, principal string) *openHandle {
	one := &openHandle{Handle: h, principal: principal}
	t.own(h.Owner.Session).byID[h.Owner.Handle] = one
	t.used.add(principal, 1)
	return one
}

func (t *handles) bind(one *openHandle, node namespace.Ref) {
	one.open, one.Node = true, node
	if t.onNode[node] == nil {
		t.onNode[node] = map[namespace.Owner]*openHandle{}
	}
	t.onNode[node][one.Owner] = one
}

// get returns an open handle. It recreates an earlier epoch's handle without a quota check: it was allowed
// then.
func (t *handles) get(h Handle, epoch api.Epoch, principal string) (*openHandle, error) {
	own := t.own(h.Owner.Session)
	one := own.byID[h.Owner.Handle]
	if one != nil && one.open && one.Node == h.Node {
		return one, nil
	}
	// A client that opens several nodes with one request number, at several masters, has a handle of one ID
	// on each; one is valid.
	if _, closed := own.earlier[h.Owner.Handle]; closed || h.Epoch >= epoch || one != nil && one.open {
		return nil, &refusal.Refusal{Cause: refusal.HandleClosed}
	}
	if len(own.earlier) >= api.MaxHandles {
		return nil, &refusal.Refusal{Cause: refusal.HandlesFromFailOver, Used: int64(len(own.earlier)), Allowed: api.MaxHandles}
	}
	own.earlier[h.Owner.Handle] = struct{}{}
	if one == nil {
		one = t.enter(h, principal)
	}
	t.bind(one, h.Node)
	return one, nil
}

// close closes a handle, or forgets one that is being opened. It reports whether the handle was open.
func (t *handles) close(owner namespace.Owner) (was bool) {
	one := t.find(owner)
	if one == nil {
		return false
	}
	t.remove(one)
	return one.open
}

// drop forgets at most most handles of an ended session, and reports whether that was all.
func (t *handles) drop(id api.SessionID, most int) (done bool) {
	own := t.of[id]
	if own == nil {
		return true
	}
	for _, one := range own.byID {
		if most--; most < 0 {
			return false
		}
		t.remove(one)
	}
	delete(t.of, id)
	return true
}

func (t *handles) remove(one *openHandle) {
	delete(t.of[one.Owner.Session].byID, one.Owner.Handle)
	t.used.add(one.principal, -1)
	if !one.open {
		return
	}
	delete(t.onNode[one.Node], one.Owner)
	if len(t.onNode[one.Node]) == 0 {
		delete(t.onNode, one.Node)
	}
}

// count returns a session's number of handles, open or being opened.
func (t *handles) count(id api.SessionID) int {
	if own := t.of[id]; own != nil {
		return len(own.byID)
	}
	return 0
}
