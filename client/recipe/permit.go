package recipe

import (
	"context"

	"github.com/chubbylock/chubby/client"
)

// Permit is one of the n, or several. Release it, also when it was lost.
type Permit struct {
	slots []slotLock // by their numbers
	all   *Locks     // of several; nil of one
}

// permit returns one of slots that are held.
func (s *Semaphore) permit(mine []slotLock) *Permit {
	p := &Permit{slots: mine}
	if len(mine) > 1 {
		p.all = &Locks{}
		for _, one := range mine {
			p.all.held = append(p.all.held, one.held)
		}
		p.all.begin()
	}
	return p
}

// Slot returns the number of the slot, 0 to n-1, which is nobody else's while the permit is held: a
// name for a shard, a port, a directory. Of several it is the lowest.
func (p *Permit) Slot() int { return p.slots[0].slot }

// Slots returns the numbers of all slots that the permit is of, the lowest first.
func (p *Permit) Slots() []int {
	list := make([]int, 0, len(p.slots))
	for _, one := range p.slots {
		list = append(list, one.slot)
	}
	return list
}

// Context is that of the work under the permit; it ends as that of a lock does: of several slots, when the first of
// them is lost.
func (p *Permit) Context() context.Context {
	if p.all != nil {
		return p.all.Context()
	}
	return p.Lock().Context()
}

// Done is closed when Context ends.
func (p *Permit) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why the permit may not be relied on any more, nil while it may.
func (p *Permit) Err() error {
	if p.all != nil {
		return p.all.Err()
	}
	return p.Lock().Err()
}

// Path returns the path of the file of Slot.
func (p *Permit) Path() string { return p.slots[0].held.handle.Path() }

// Lock returns the lock of Slot, for its sequencer and token. Tokens order the holders of one
// slot; a server that checks them is told of each slot by its path. It is not to be released but by
// Release of the permit.
func (p *Permit) Lock() *client.Lock { return p.slots[0].held.lock }

// Locks returns the locks of Slots, in their order, for which the same holds.
func (p *Permit) Locks() []*client.Lock {
	list := make([]*client.Lock, 0, len(p.slots))
	for _, one := range p.slots {
		list = append(list, one.held.lock)
	}
	return list
}

// Release gives the permit back, and returns as client.Lock.Release does; of several slots, one after the other,
// and with the errors of all (Locks.Release). If ctx ends before the cell has answered it is Uncertain, and goes on
// in the background; another call waits for it again.
func (p *Permit) Release(ctx context.Context) error {
	if p.all != nil {
		return p.all.Release(ctx)
	}
	return p.slots[0].held.release(ctx)
}
