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

func slotName(slot int) string { return fmt.Sprintf("slot-%03d", slot) }

type slotHandle struct {
	slot   int
	handle *client.Handle
}

type slotLock struct {
	slot int
	held *held
}

// take takes the wanted number of free slots, or waits for them. It reports whether the turn was lost before
// it had several: then it has none, as another caller may have the turn.
func (s *Semaphore) take(ctx, turn context.Context, o SemaphoreOptions) (p *Permit, lost bool, err error) {
	var mine []slotLock
	for {
		mine = stillHeld(ctx, mine)
		more, taken, err := s.trySlots(ctx, mine, o)
		mine = append(mine, more...)
		if isBusy(err) {
			more, err = s.first(ctx, turn, mine, taken, o)
			mine = append(mine, more...)
		} else {
			leaveSlots(ctx, taken)
		}
		switch {
		case len(mine) == o.weight():
			if mine = stillHeld(ctx, mine); len(mine) == o.weight() {
				slices.SortFunc(mine, func(a, b slotLock) int { return a.slot - b.slot })
				return s.permit(mine), false, nil
			}
		case o.weight() > 1 && turn.Err() != nil && ctx.Err() == nil && s.c.Err() == nil:
			letGo(ctx, mine)
			return nil, true, nil
		//mutant: case err != nil: //by TestTakenFromWhoWaitsForAll of ./client/recipe
		case err != nil && !passing(err):
			letGo(ctx, mine)
			return nil, false, err
		}
		// One slot has changed: its file was deleted, for example. Wait for the others as before.
	}
}

// stillHeld returns the slots still held; it releases the others.
func stillHeld(ctx context.Context, mine []slotLock) []slotLock {
	var still, lost []slotLock
	for _, one := range mine {
		if one.held.lock.Err() == nil {
			still = append(still, one)
		} else {
			lost = append(lost, one)
		}
	}
	letGo(ctx, lost)
	return still
}

func letGo(ctx context.Context, slots []slotLock) {
	var handles []*client.Handle
	for _, one := range slots {
		handles = append(handles, one.held.handle)
	}
	leave(ctx, handles...)
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

// trySlots takes free slots, until with mine they are the wanted number. It returns those it has also with an
// error; if too few, with the handles of the taken ones. It skips an unusable slot as long as there are
// others.
func (s *Semaphore) trySlots(ctx context.Context, mine []slotLock, o SemaphoreOptions) (got []slotLock, taken []slotHandle, err error) {
	need := o.weight() - len(mine)
	var spoilt error
	busy := &api.Error{Code: api.LockHeld, Op: "acquire", Path: s.dir}
	start := rand.IntN(s.n)
	for i := range s.n {
		if len(got) == need {
			return got, taken, nil
		}
		one := slotHandle{slot: (start + i) % s.n}
		if slices.ContainsFunc(mine, func(l slotLock) bool { return l.slot == one.slot }) {
			continue
		}
		l, err := s.trySlot(ctx, &one, o)
		if err == nil {
			got = append(got, s.hold(one, l))
			continue
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
			return got, taken, err
		}
	}
	if len(got) == need {
		return got, taken, nil
	}
	if spoilt != nil && len(got)+len(taken) < need {
		return got, taken, spoilt
	}
	busy.Message = fmt.Sprintf("all %d slots are taken", s.n)
	if o.weight() > 1 {
		busy.Message = fmt.Sprintf("%d of %d slots are free, and %d are wanted", len(mine)+len(got), s.n, o.weight())
	}
	if busy.Code == api.LockDelayed {
		busy.Message += ", and some wait for the end of a lock-delay"
	}
	if spoilt != nil {
		busy.Message = fmt.Sprintf("%d of %d slots are taken, and the others cannot be used: %v", len(taken), s.n, spoilt)
	}
	return got, taken, busy
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

func (s *Semaphore) hold(one slotHandle, l *client.Lock) slotLock {
	return slotLock{slot: one.slot, held: &held{c: s.c, handle: one.handle, lock: l}}
}

// first waits for all slots at once and takes the first it gets, the wanted number. Closing the other handles
// ends the other waits. With some slots, it waits only while it has them and the turn, as two such callers
// would wait for each other. If it returns a nil error with too few slots, the caller tries again.
func (s *Semaphore) first(ctx, turn context.Context, mine []slotLock, slots []slotHandle, o SemaphoreOptions) (got []slotLock, err error) {
	type outcome struct {
		one  slotHandle
		lock *client.Lock
		err  error
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.weight() > 1 {
		//mutant: _ = turn //by TestSemaphoreOfWeightLosesItsTurn of ./client/recipe
		defer context.AfterFunc(turn, cancel)()
	}
	for _, one := range mine {
		//mutant: _ = one //by TestSemaphoreOfWeightLosesASlot of ./client/recipe
		defer context.AfterFunc(one.held.lock.Context(), cancel)()
	}
	outcomes := make(chan outcome, len(slots))
	var waits sync.WaitGroup
	for _, one := range slots {
		waits.Go(func() {
			l, err := one.handle.Acquire(within, api.Exclusive, client.Reason(o.Reason))
			outcomes <- outcome{one, l, err}
		})
	}
	rest := slices.Clone(slots)
	for err == nil && len(mine)+len(got) < o.weight() {
		had := <-outcomes
		if err = had.err; err != nil {
			break
		}
		rest = slices.DeleteFunc(rest, func(one slotHandle) bool { return one == had.one })
		got = append(got, s.hold(had.one, had.lock))
		//mutant: /* nothing */ //by TestSemaphoreOfWeightLosesASlot of ./client/recipe
		defer context.AfterFunc(had.lock.Context(), cancel)()
	}
	leaveSlots(ctx, rest)
	waits.Wait() // closing its handle released a second lock
	if within.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return got, err
}
