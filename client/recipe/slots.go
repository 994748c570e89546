package recipe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const (
	turnstileName = "turnstile"
	// mostQueued limits a process's requests in the cell's queue; the others wait in the process. Each waiter
	// takes one of its session's api.MaxOutstanding requests; if waiters took all, holders could not release.
	mostQueued = 32
)

// open opens the turnstile, whose contents are the size.
func (s *Semaphore) open(ctx context.Context) (*client.Handle, error) {
	return openIn(ctx, s.c, s.dir, turnstileName, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte(strconv.Itoa(s.n))})
}

// enter waits for its turn: it is the lock of the turnstile, with the cell's queue. It calls check, if any,
// before; an error ends the wait. The caller must call leave. The lock guards nothing, so it needs no
// lock-delay: if it was broken or a session has ended, two may be let through. A caller whose lock was broken
// releases it at once, as the cell extends no lease until then, and goes on.
func (s *Semaphore) enter(ctx context.Context, reason string, check func(ctx context.Context, h *client.Handle) error) (*client.Handle, error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.c.Done():
		return nil, s.c.Err()
	}
	h, err := s.pass(ctx, reason, check)
	//mutant: for false { //by TestTakenInTheMomentOfTheGrant of ./client/recipe
	for err != nil && passing(err) {
		h, err = s.pass(ctx, reason, check)
	}
	if err != nil {
		<-s.places
	}
	return h, err
}

func (s *Semaphore) pass(ctx context.Context, reason string, check func(ctx context.Context, h *client.Handle) error) (*client.Handle, error) {
	h, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if check != nil {
		err = check(ctx, h)
	}
	if err == nil {
		var l *client.Lock
		if l, err = h.Acquire(ctx, api.Exclusive, client.Reason(reason)); err == nil {
			// After leave it does nothing; before, it ends when the cell has answered or the session has
			// ended.
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(ctx)) })
			return h, nil
		}
	}
	leave(ctx, h)
	return nil, err
}

func (s *Semaphore) leave(ctx context.Context, h *client.Handle) {
	leave(ctx, h)
	<-s.places
}

// Permit is one of the slots. Release it, also after it was lost.
type Permit struct {
	*held
	slot int
}

// Slot returns the number of the slot, 0 to n-1, exclusive while the permit is held: a name for a shard, a
// port, a directory. Tokens of Lock order the holders of one slot; a server that checks them needs each
// slot's path.
func (p *Permit) Slot() int { return p.slot }

func slotName(slot int) string { return fmt.Sprintf("slot-%03d", slot) }

// take takes a free slot, or waits for one.
func (s *Semaphore) take(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	for {
		p, taken, err := s.trySlots(ctx, o)
		if isBusy(err) {
			p, err = s.first(ctx, taken, o)
		} else {
			leave(ctx, slices.Collect(maps.Values(taken))...)
		}
		if err == nil && p.Err() != nil { // it was lost meanwhile
			leave(ctx, p.handle)
			continue
		}
		//mutant: if true { //by TestTakenFromWhoWaitsForAll of ./client/recipe
		if err == nil || !passing(err) {
			return p, err
		}
		// One slot has changed: its file was deleted, for example. Wait for all as before.
	}
}

// trySlots takes a free slot. It also returns the handles of taken ones, by number. It skips an unusable slot as
// long as there are others.
func (s *Semaphore) trySlots(ctx context.Context, o SemaphoreOptions) (p *Permit, taken map[int]*client.Handle, err error) {
	var spoilt error
	busy := &api.Error{Code: api.LockHeld, Op: "acquire", Path: s.dir}
	taken = map[int]*client.Handle{}
	start := rand.IntN(s.n)
	for i := range s.n {
		slot := (start + i) % s.n
		h, l, err := s.trySlot(ctx, slot, o)
		if err == nil {
			return &Permit{&held{c: s.c, handle: h, lock: l}, slot}, taken, nil
		}
		if h != nil {
			taken[slot] = h
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
func (s *Semaphore) trySlot(ctx context.Context, slot int, o SemaphoreOptions) (*client.Handle, *client.Lock, error) {
	for {
		h, err := s.c.Open(ctx, s.dir+"/"+slotName(slot), client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(o.LockDelay)})
		if err != nil {
			return nil, nil, err
		}
		//mutant: l, err := h.TryAcquire(ctx, api.Shared, client.Reason(o.Reason)) //by TestSemaphore of ./client/recipe
		l, err := h.TryAcquire(ctx, api.Exclusive, client.Reason(o.Reason))
		if err == nil || !unusable(err) {
			return h, l, err
		}
		leave(ctx, h)
		//mutant: if true { //by TestSlotIsDeletedWhenItIsTried of ./client/recipe
		if !gone(err) {
			return nil, nil, err
		}
	}
}

// first waits for all slots at once, and takes the first that it gets. Closing the other handles ends the other
// waits.
func (s *Semaphore) first(ctx context.Context, slots map[int]*client.Handle, o SemaphoreOptions) (*Permit, error) {
	type outcome struct {
		slot int
		lock *client.Lock
		err  error
	}
	outcomes := make(chan outcome, len(slots))
	var waits sync.WaitGroup
	for slot, h := range slots {
		waits.Go(func() {
			l, err := h.Acquire(ctx, api.Exclusive, client.Reason(o.Reason))
			outcomes <- outcome{slot, l, err}
		})
	}
	had := <-outcomes
	p := &Permit{&held{c: s.c, handle: slots[had.slot], lock: had.lock}, had.slot}
	if had.err == nil {
		delete(slots, had.slot)
	}
	leave(ctx, slices.Collect(maps.Values(slots))...)
	waits.Wait() // closing its handle released a second lock
	if had.err != nil {
		return nil, had.err
	}
	return p, nil
}
