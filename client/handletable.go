package client

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// handleTable has the handles of a session by id, as events name them.
type handleTable struct {
	mu   sync.Mutex // guards byID; take no mutex under it
	byID map[api.HandleID]*Handle
}

func newHandleTable() *handleTable { return &handleTable{byID: map[api.HandleID]*Handle{}} }

func (t *handleTable) get(id api.HandleID) *Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *handleTable) put(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[h.id] = h
}

// remove removes a handle, unless a later Open got the same one of the cell: events are for that one then.
func (t *handleTable) remove(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[h.id] == h {
		delete(t.byID, h.id)
	}
}

func (t *handleTable) all() []*Handle {
	t.mu.Lock()
	list := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b *Handle) int { return cmp.Compare(a.id, b.id) })
	return list
}

func (t *handleTable) count() (handles, events int) {
	for _, h := range t.all() {
		handles++
		h.mu.Lock()
		events += len(h.events)
		h.mu.Unlock()
	}
	return handles, events
}

// unreleasedLocks returns the locks not released by their owners, lost ones too.
func (t *handleTable) unreleasedLocks() []*Lock {
	var list []*Lock
	for _, h := range t.all() {
		h.mu.Lock()
		l := h.lock
		h.mu.Unlock()
		if l != nil && !l.isReleased() {
			list = append(list, l)
		}
	}
	return list
}

func (t *handleTable) endedUnreleasedLocks() []*Lock {
	return slices.DeleteFunc(t.unreleasedLocks(), func(l *Lock) bool { return l.ctx.Err() == nil })
}
