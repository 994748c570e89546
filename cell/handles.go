package cell

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// handles is the table of open handles of one epoch. It is volatile: a handle
// that an earlier master made is recreated when it is first used (Chubby §2.9,
// step 8), and stays closed once it was closed in this epoch. master.mu guards
// it.
type handles struct {
	open   map[api.SessionID]map[api.HandleID]*openHandle
	onNode map[namespace.Ref]map[namespace.Owner]bool
}

// openHandle is a handle while it is open, or, if closed is set, the memory
// that one of an earlier epoch was closed in this one.
type openHandle struct {
	handle
	locks  bool // a lock was asked for through it, so closing it goes through the log
	closed bool
}

func newHandles() *handles {
	return &handles{open: map[api.SessionID]map[api.HandleID]*openHandle{}, onNode: map[namespace.Ref]map[namespace.Owner]bool{}}
}

// add opens a handle; opening it again is the same handle.
func (t *handles) add(h handle) (*openHandle, error) {
	of := t.open[h.owner.Session]
	if was, ok := of[h.owner.Handle]; ok && !was.closed {
		return was, nil
	}
	if len(of) >= api.MaxHandles {
		return nil, api.Errorf(api.QuotaExceeded, "the session has %d handles open; at most %d are allowed: close some", len(of), api.MaxHandles)
	}
	if of == nil {
		of = map[api.HandleID]*openHandle{}
		t.open[h.owner.Session] = of
	}
	one := &openHandle{handle: h}
	of[h.owner.Handle] = one
	if t.onNode[h.node] == nil {
		t.onNode[h.node] = map[namespace.Owner]bool{}
	}
	t.onNode[h.node][h.owner] = true
	return one, nil
}

// get returns an open handle, recreating one of an earlier epoch.
func (t *handles) get(h handle, epoch api.Epoch) (*openHandle, error) {
	one, ok := t.open[h.owner.Session][h.owner.Handle]
	switch {
	case ok && !one.closed:
		return one, nil
	case ok, h.epoch >= epoch:
		return nil, api.Errorf(api.HandleClosed, "the handle was closed; open the node anew")
	}
	return t.add(h)
}

// close closes a handle.
func (t *handles) close(h handle, epoch api.Epoch) {
	t.forgetNode(h)
	of := t.open[h.owner.Session]
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

// drop forgets every handle of a session.
func (t *handles) drop(id api.SessionID) {
	for _, h := range t.open[id] {
		t.forgetNode(h.handle)
	}
	delete(t.open, id)
}

func (t *handles) forgetNode(h handle) {
	delete(t.onNode[h.node], h.owner)
	if len(t.onNode[h.node]) == 0 {
		delete(t.onNode, h.node)
	}
}

// on returns the handles that are open on a node.
func (t *handles) on(node namespace.Ref) []namespace.Owner {
	var owners []namespace.Owner
	for o := range t.onNode[node] {
		owners = append(owners, o)
	}
	return owners
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
