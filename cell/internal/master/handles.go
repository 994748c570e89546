package master

import (
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// handles is the table of the handles of one epoch. It is volatile: a handle that
// an earlier master made is recreated when it is first used (Chubby §2.9, step
// 8), and stays closed once it was closed in this epoch. What a handle holds, a
// lock or an ephemeral node, is in the replicated state; the table never decides
// whether there is something to give up. epoch.mu guards it.
type handles struct {
	of     map[api.SessionID]*ownHandles
	onNode map[namespace.Ref]map[namespace.Owner]*openHandle // the open ones
	used   tally

	refusing map[namespace.Owner]int // refusals of the Opens of those handles that the log is being asked for, or is about to be
}

// ownHandles is what is known of the handles of one session.
type ownHandles struct {
	byID map[api.HandleID]*openHandle // open, or being opened
	// earlier are the handles of earlier epochs that were used or closed in this
	// one: those that are not in byID are closed. At most api.MaxHandles, which is
	// as many as a client can have had open.
	earlier  map[api.HandleID]struct{}
	declared session.Declared
	refused  map[api.RequestNumber]error // Opens that were refused without an entry; at most api.MaxOutstanding
}

// openHandle is a handle that is open, or being opened.
type openHandle struct {
	Handle
	principal string
	open      bool
	locks     bool           // a lock was asked for through it, so closing it goes through the log
	checked   api.Generation // of the lock, of which a sequencer was shown here while it was held through the handle; 0 if none was
	copies    int            // of its Open that are being served
	logged    bool           // one of those went to the log, which therefore answers them all
	told      bool           // it was told who waited when it got the lock, and of those who came since; see tellConflicts

	usage *usage // of its session; nil if nobody counts it
	known        // what was learned through it that may be the same yet
}

// known says that nothing has happened at a node since somebody has looked, or tried to take its lock, through a handle.
type known struct{ looked, tried bool }

func newHandles() *handles {
	return &handles{
		of:     map[api.SessionID]*ownHandles{},
		onNode: map[namespace.Ref]map[namespace.Owner]*openHandle{},
		used:   newTally(),

		refusing: map[namespace.Owner]int{},
	}
}

// own returns what is known of a session, which lives.
func (t *handles) own(id api.SessionID) *ownHandles {
	own := t.of[id]
	if own == nil {
		own = &ownHandles{byID: map[api.HandleID]*openHandle{}, earlier: map[api.HandleID]struct{}{}, refused: map[api.RequestNumber]error{}}
		t.of[id] = own
	}
	return own
}

// find returns a handle that is open or being opened, nil if there is none.
func (t *handles) find(owner namespace.Owner) *openHandle {
	if own := t.of[owner.Session]; own != nil {
		return own.byID[owner.Handle]
	}
	return nil
}

// declare takes note of the declaration of a request, and forgets the refusals that
// its client has heard.
func (t *handles) declare(by session.Mutation) {
	own := t.own(by.Session)
	own.declared.Record(by)
	for number := range own.refused {
		if own.declared.Finished(number) {
			delete(own.refused, number)
		}
	}
}

// reserve makes room for a handle that is being opened in the name of a
// principal, which may have allowed of them (nil: of one that was opened already
// the quota is not asked again); a copy of the same Open shares it. It is given up
// with done, unless it was opened by then. What is done through it is counted there.
func (t *handles) reserve(h Handle, principal string, counts *usage, allowed *int) (*openHandle, error) {
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
		one.usage = counts
	}
	one.copies++
	return one, nil
}

// refuse remembers the refusal of an Open that needed no entry, until its
// client has heard it: other copies are answered the same. It is for one that makes no
// node, whatever it finds: another master does not know of the refusal.
func (t *handles) refuse(by session.Mutation, because error) *api.Error {
	told := &api.Error{Code: api.CodeOf(because), Message: because.Error()}
	if e := (*api.Error)(nil); errors.As(because, &e) {
		told.Message = e.Message
	}
	told.Final = refusal.IsFinal(told.Code)
	t.own(by.Session).refused[by.Number] = told
	return told
}

// endRefusal notes that the log has refused an Open, or has answered it otherwise, or that it
// is not being asked any more.
func (t *handles) endRefusal(owner namespace.Owner) {
	if t.refusing[owner]--; t.refusing[owner] == 0 {
		delete(t.refusing, owner)
	}
}

// endReservation ends a reservation.
func (t *handles) endReservation(one *openHandle) {
	if one.copies--; one.copies == 0 && !one.open && t.find(one.Owner) == one {
		t.remove(one)
	}
}

// enter counts a handle.
func (t *handles) enter(h Handle, principal string) *openHandle {
	one := &openHandle{Handle: h, principal: principal}
	t.own(h.Owner.Session).byID[h.Owner.Handle] = one
	t.used.add(principal, 1)
	return one
}

// bind opens a handle that was reserved.
func (t *handles) bind(one *openHandle, node namespace.Ref) {
	one.open, one.Node = true, node
	one.usage.count(actionOpen, node.Name)
	if t.onNode[node] == nil {
		t.onNode[node] = map[namespace.Owner]*openHandle{}
	}
	t.onNode[node][one.Owner] = one
}

// get returns an open handle, and recreates one of an earlier epoch, whatever
// the quota: its principal was allowed to have it.
func (t *handles) get(h Handle, epoch api.Epoch, principal string) (*openHandle, error) {
	own := t.own(h.Owner.Session)
	one := own.byID[h.Owner.Handle]
	if one != nil && one.open && one.Node == h.Node {
		return one, nil
	}
	// A client that opens different nodes with one request, at several masters, has handles
	// of one name on each: one of them is good.
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

// countDone counts what was done through a handle, if it is open still.
func (t *handles) countDone(owner namespace.Owner, d action) {
	if one := t.find(owner); one != nil && one.open {
		one.usage.count(d, one.Node.Name)
	}
}

// close closes a handle, or forgets one that is being opened.
func (t *handles) close(owner namespace.Owner) {
	if one := t.find(owner); one != nil {
		if one.open {
			one.usage.count(actionClose, "")
		}
		t.remove(one)
	}
}

// drop forgets handles of a session that has ended, at most most of them, and
// reports whether it knows of no more.
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

// remove takes a handle out of the table.
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

// count returns how many handles a session has open, or is opening.
func (t *handles) count(id api.SessionID) int {
	if own := t.of[id]; own != nil {
		return len(own.byID)
	}
	return 0
}
