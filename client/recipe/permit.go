package recipe

import (
	"context"

	"github.com/chubbylock/chubby/client"
)

// Permit is one or several of the slots. Release it, also after it was lost.
type Permit struct {
	slots []slotLock // by number
	all   *Locks     // of several; nil for one
}

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

// Slot returns the number of the slot, 0 to n-1, exclusive while the permit is held: a name for a shard, a
// port, a directory. Of several it is the lowest.
func (p *Permit) Slot() int { return p.slots[0].slot }

// Slots returns the numbers of all slots of the permit, the lowest first.
func (p *Permit) Slots() []int {
	list := make([]int, 0, len(p.slots))
	for _, one := range p.slots {
		list = append(list, one.slot)
	}
	return list
}

// Context is that of the work under the permit. It ends as a lock's does: with several slots, when the first
// is lost.
func (p *Permit) Context() context.Context {
	if p.all != nil {
		return p.all.Context()
	}
	return p.Lock().Context()
}

// Done is closed when Context ends.
func (p *Permit) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why the permit is unreliable, or nil.
func (p *Permit) Err() error {
	if p.all != nil {
		return p.all.Err()
	}
	return p.Lock().Err()
}

// Path returns the path of the file of Slot.
func (p *Permit) Path() string { return p.slots[0].held.handle.Path() }

// Lock returns the lock of Slot, for its sequencer and token. Tokens order the holders of one slot; a server
// that checks them needs each slot's path. Only the permit's Release releases it.
func (p *Permit) Lock() *client.Lock { return p.slots[0].held.lock }

// Locks returns the locks of Slots, in their order, on the terms of Lock.
func (p *Permit) Locks() []*client.Lock {
	list := make([]*client.Lock, 0, len(p.slots))
	for _, one := range p.slots {
		list = append(list, one.held.lock)
	}
	return list
}

// Release gives the permit back, and returns as client.Lock.Release does; of several slots, in turn, with all
// errors (Locks.Release). After Uncertain
// it goes on in the background; another call waits for it again.
func (p *Permit) Release(ctx context.Context) error {
	if p.all != nil {
		return p.all.Release(ctx)
	}
	return p.slots[0].held.release(ctx)
}
