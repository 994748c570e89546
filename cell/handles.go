package cell

import (
	"math"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// handles is the table of open handles of one epoch. It is volatile: a handle
// that an earlier master made is recreated when it is first used (Chubby §2.9,
// step 8), and stays closed once it was closed in this epoch. master.mu guards
// it.
type handles struct {
	open   map[api.SessionID]map[api.HandleID]*openHandle
	onNode map[namespace.Ref]map[namespace.Owner]*openHandle
	used   map[string]int // open handles of each principal, for its quota
}

// openHandle is a handle while it is open, or, if closed is set, the memory
// that one of an earlier epoch was closed in this one.
type openHandle struct {
	handle
	principal string
	locks     bool // a lock was asked for through it, so closing it goes through the log
	closed    bool
}

func newHandles() *handles {
	return &handles{
		open:   map[api.SessionID]map[api.HandleID]*openHandle{},
		onNode: map[namespace.Ref]map[namespace.Owner]*openHandle{},
		used:   map[string]int{},
	}
}

// add opens a handle in the name of a principal, which may have allowed of them
// open; opening it again is the same handle.
func (t *handles) add(h handle, principal string, allowed int) (*openHandle, error) {
	of := t.open[h.owner.Session]
	if was, ok := of[h.owner.Handle]; ok && !was.closed {
		return was, nil
	}
	if len(of) >= api.MaxHandles {
		return nil, api.Errorf(api.QuotaExceeded, "handles of the session: %d used, %d allowed; close some", len(of), api.MaxHandles)
	}
	if t.used[principal] >= allowed {
		return nil, api.Errorf(api.QuotaExceeded, "handles of principal %q: %d used, %d allowed; close some, or have the quota raised", principal, t.used[principal], allowed)
	}
	if of == nil {
		of = map[api.HandleID]*openHandle{}
		t.open[h.owner.Session] = of
	}
	one := &openHandle{handle: h, principal: principal}
	of[h.owner.Handle] = one
	if t.onNode[h.node] == nil {
		t.onNode[h.node] = map[namespace.Owner]*openHandle{}
	}
	t.onNode[h.node][h.owner] = one
	t.used[principal]++
	return one, nil
}

// get returns an open handle, and recreates one of an earlier epoch, whatever
// the quota: its principal was allowed to have it.
func (t *handles) get(h handle, epoch api.Epoch, principal string) (*openHandle, error) {
	one, ok := t.open[h.owner.Session][h.owner.Handle]
	switch {
	case ok && !one.closed:
		return one, nil
	case ok, h.epoch >= epoch:
		return nil, api.Errorf(api.HandleClosed, "the handle was closed; open the node anew")
	}
	return t.add(h, principal, math.MaxInt)
}

// close closes a handle.
func (t *handles) close(h handle, epoch api.Epoch) {
	of := t.open[h.owner.Session]
	if one := of[h.owner.Handle]; one != nil {
		t.forget(one)
	}
	if h.epoch >= epoch {
		delete(of, h.owner.Handle)
		return
	}
	if of == nil {
		of = map[api.HandleID]*openHandle{}
		t.open[h.owner.Session] = of
	}
	of[h.owner.Handle] = &openHandle{handle: h, closed: true}
}

// discard forgets the handle of an Open that its client has withdrawn: one of a
// node that was there already needed no entry, and so had been opened all the
// same.
func (t *handles) discard(id api.SessionID, handle api.HandleID) {
	if one := t.open[id][handle]; one != nil {
		t.forget(one)
		delete(t.open[id], handle)
	}
}

// drop forgets every handle of a session.
func (t *handles) drop(id api.SessionID) {
	for _, h := range t.open[id] {
		t.forget(h)
	}
	delete(t.open, id)
}

// forget takes an open handle out of the indexes.
func (t *handles) forget(h *openHandle) {
	if h.closed {
		return
	}
	if t.used[h.principal]--; t.used[h.principal] == 0 {
		delete(t.used, h.principal)
	}
	delete(t.onNode[h.node], h.owner)
	if len(t.onNode[h.node]) == 0 {
		delete(t.onNode, h.node)
	}
}

// on returns the handles that are open on a node.
func (t *handles) on(node namespace.Ref) []*openHandle {
	list := make([]*openHandle, 0, len(t.onNode[node]))
	for _, h := range t.onNode[node] {
		list = append(list, h)
	}
	return list
}

// watching returns the handles on a node that were opened for events of a kind.
func (t *handles) watching(node namespace.Ref, kind api.EventKind) []*openHandle {
	var list []*openHandle
	for _, h := range t.onNode[node] {
		if h.events.has(kind) {
			list = append(list, h)
		}
	}
	return list
}

// count returns how many handles a session has open.
func (t *handles) count(id api.SessionID) (n int) {
	for _, h := range t.open[id] {
		if !h.closed {
			n++
		}
	}
	return n
}
