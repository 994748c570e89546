package client

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// handles finds those who are concerned by an event.
type handles struct {
	mu   sync.Mutex // guards byID
	byID map[api.HandleID]*Handle
}

func newHandles() *handles { return &handles{byID: map[api.HandleID]*Handle{}} }

func (t *handles) get(id api.HandleID) *Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *handles) put(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[h.id] = h
}

// remove takes a handle out, unless an Open has taken its place at the cell, and
// here: events of the node are for that one then.
func (t *handles) remove(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[h.id] == h {
		delete(t.byID, h.id)
	}
}

// all returns the handles that are open, or about to be, in the order of their
// opening.
func (t *handles) all() []*Handle {
	t.mu.Lock()
	list := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b *Handle) int { return cmp.Compare(a.id, b.id) })
	return list
}

// locks returns the locks whose owners have not let go, lost ones too.
func (t *handles) locks() []*Lock {
	var list []*Lock
	for _, h := range t.all() {
		h.mu.Lock()
		l := h.lock
		h.mu.Unlock()
		if l != nil && !l.isLet() {
			list = append(list, l)
		}
	}
	return list
}

// ended returns those of the locks whose contexts have ended.
func (t *handles) ended() []*Lock {
	return slices.DeleteFunc(t.locks(), func(l *Lock) bool { return l.ctx.Err() == nil })
}
