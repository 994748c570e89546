package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Permit is one of the slots. Release it, also after it was lost.
type Permit struct {
	hold
	slot int
}

// Slot returns the number of the slot, 0 to n-1, exclusive while the permit is held: a name for a shard, a
// port, a directory. Tokens of Lock order the holders of one slot; a server that checks them needs each
// slot's path.
func (p *Permit) Slot() int { return p.slot }

func slotName(slot int) string { return fmt.Sprintf("slot-%03d", slot) }

type slotHandle struct {
	slot   int
	handle *client.Handle
}

func (s *Semaphore) permit(one slotHandle, l *client.Lock) *Permit {
	return &Permit{hold{&held{c: s.c, handle: one.handle, lock: l}}, one.slot}
}

// take takes a free slot, or waits for one.
func (s *Semaphore) take(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	for {
		p, taken, err := s.trySlots(ctx, o)
		if isBusy(err) {
			p, err = s.first(ctx, taken, o)
		} else {
			leaveSlots(ctx, taken)
		}
		//mutant: if true { //by TestTakenFromWhoWaitsForAll of ./client/recipe
		if err == nil || !passing(err) {
			return p, err
		}
		// One slot has changed: its file was deleted, for example. Wait for all as before.
	}
}

func leaveSlots(ctx context.Context, slots []slotHandle) {
	var handles []*client.Handle
	for _, one := range slots {
		handles = append(handles, one.handle)
	}
	leave(ctx, handles...)
}

func (s *Semaphore) openSlot(ctx context.Context, slot int, o SemaphoreOptions) (*client.Handle, error) {
	return s.c.Open(ctx, s.dir+"/"+slotName(slot), client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(o.LockDelay)})
}

// trySlots takes a free slot. Otherwise it returns the handles of the taken ones. It skips an unusable slot as
// long as there are others.
func (s *Semaphore) trySlots(ctx context.Context, o SemaphoreOptions) (p *Permit, taken []slotHandle, err error) {
	var spoilt error
	busy := &api.Error{Code: api.LockHeld, Op: "acquire", Path: s.dir}
	start := rand.IntN(s.n)
	for i := range s.n {
		one := slotHandle{slot: (start + i) % s.n}
		l, err := s.trySlot(ctx, &one, o)
		if err == nil {
			return s.permit(one, l), taken, nil
		}
		if one.handle != nil {
			taken = append(taken, one)
		}
		var e *api.Error
		switch {
		case isBusy(err) && errors.As(err, &e):
			busy.Holders = append(busy.Holders, e.Holders...)
			if e.Code == api.LockDelayed && (busy.Remaining == 0 || e.Remaining < busy.Remaining) {
				busy.Code, busy.Remaining = api.LockDelayed, e.Remaining
			}
		case unusable(err):
			spoilt = err
		default:
			return nil, taken, err
		}
	}
	if len(taken) == 0 {
		return nil, nil, spoilt
	}
	busy.Message = fmt.Sprintf("all %d slots are taken", s.n)
	if busy.Code == api.LockDelayed {
		busy.Message += ", and some wait for the end of a lock-delay"
	}
	if spoilt != nil {
		busy.Message = fmt.Sprintf("%d of %d slots are taken, and the others cannot be used: %v", len(taken), s.n, spoilt)
	}
	return nil, taken, busy
}

// trySlot opens a slot and tries its lock. The handle stays open if the lock is taken. A file deleted after
// the open says nothing of the slot: try the next file.
func (s *Semaphore) trySlot(ctx context.Context, one *slotHandle, o SemaphoreOptions) (*client.Lock, error) {
	for {
		h, err := s.openSlot(ctx, one.slot, o)
		if err != nil {
			return nil, err
		}
		//mutant: l, err := h.TryAcquire(ctx, api.Shared, client.Reason(o.Reason)) //by TestSemaphore of ./client/recipe
		l, err := h.TryAcquire(ctx, api.Exclusive, client.Reason(o.Reason))
		if err == nil || !unusable(err) {
			one.handle = h
			return l, err
		}
		leave(ctx, h)
		//mutant: if true { //by TestSlotIsDeletedWhenItIsTried of ./client/recipe
		if !gone(err) {
			return nil, err
		}
	}
}

// first waits for all slots at once, and takes the first that it gets. Closing the other handles ends the other
// waits.
func (s *Semaphore) first(ctx context.Context, slots []slotHandle, o SemaphoreOptions) (*Permit, error) {
	type outcome struct {
		one  slotHandle
		lock *client.Lock
		err  error
	}
	outcomes := make(chan outcome, len(slots))
	var waits sync.WaitGroup
	for _, one := range slots {
		waits.Go(func() {
			l, err := one.handle.Acquire(ctx, api.Exclusive, client.Reason(o.Reason))
			outcomes <- outcome{one, l, err}
		})
	}
	had := <-outcomes
	if had.err == nil {
		slots = slices.DeleteFunc(slots, func(one slotHandle) bool { return one == had.one })
	}
	leaveSlots(ctx, slots)
	waits.Wait() // closing its handle released a second lock
	if had.err != nil {
		return nil, had.err
	}
	return s.permit(had.one, had.lock), nil
}
