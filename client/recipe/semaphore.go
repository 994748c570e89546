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
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// MaxSlots limits the size of a Semaphore: one caller waits for all slots at once, and a session has at most
// api.MaxOutstanding pending requests.
const MaxSlots = 100

// Semaphore lets at most n hold it at a time, in the whole cell. It is a directory with a lock file for each
// slot, and one, the turnstile, that orders the waiters.
//
// The invariant: to hold a permit is to hold, exclusively, the lock of a slot whose number is below the size
// in the directory. So permits never exceed the size, on the terms of any lock: a failed holder keeps its
// slot until lease and lock-delay are over, and knows a margin before (Permit.Context). The turnstile is for
// order and thrift, not for safety: its holder takes a free slot, or waits for all and takes the first; then
// the next has it. So only one waits for all slots.
//
// Its methods may be called from several goroutines. Of one Semaphore, 32 are in the cell's queue at a time,
// and the others wait here. All semaphores of a client share its session's 192 queue places; slots without
// one are tried every few seconds (client.Handle.Acquire).
type Semaphore struct {
	c    *client.Client
	dir  string
	n    int
	door *hold.Turnstile // whose contents are the size
}

// SemaphoreOptions qualify Acquire and TryAcquire.
type SemaphoreOptions struct {
	// LockDelay blocks the slot of a failed holder after its lease: at most api.MaxLockDelay. Zero is
	// api.DefaultLockDelay; NoLockDelay is for servers that check sequencers.
	LockDelay time.Duration
	// Reason is shown in listings of holders; at most api.MaxReason bytes.
	Reason string
}

// NewSemaphore returns a semaphore of n, 1 to MaxSlots, without a call. The first Acquire makes the
// directory, in an existing one, with its n; then another n is rejected (ResizeSemaphore).
func NewSemaphore(c *client.Client, dir string, n int) *Semaphore {
	return &Semaphore{c: c, dir: dir, n: n, door: hold.NewTurnstile(c, dir, []byte(strconv.Itoa(n)))}
}

// Acquire waits until there is room, first come, first served, and returns a permit. If ctx ends first, the
// error is DeadlineExceeded or Cancelled, and nothing is held. A directory of another size is
// InvalidArgument, which names both.
func (s *Semaphore) Acquire(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	if err := sizeFault("acquire", s.n, s.dir); err != nil {
		return nil, err
	}
	h, err := s.door.Enter(ctx, o.Reason, s.agree)
	if err != nil {
		return nil, hold.Ended(ctx, err, "acquire", s.dir)
	}
	defer s.door.Leave(ctx, h)
	p, err := s.take(ctx, o)
	return s.confirm(ctx, p, err, s.agree(ctx, h))
}

// TryAcquire returns a permit if a slot is free. It does not queue, and may overtake waiters, except the one
// whose turn it is. If none is free, it is LockHeld, with the other holders; if some are not held but
// delayed, LockDelayed, with the shortest delay.
func (s *Semaphore) TryAcquire(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	if err := sizeFault("acquire", s.n, s.dir); err != nil {
		return nil, err
	}
	h, err := s.door.Open(ctx)
	if err != nil {
		return nil, hold.Ended(ctx, err, "try to acquire", s.dir)
	}
	defer hold.Leave(ctx, h)
	if err := s.agree(ctx, h); err != nil {
		return nil, err
	}
	p, taken, err := s.trySlots(ctx, o)
	hold.Leave(ctx, slices.Collect(maps.Values(taken))...)
	return s.confirm(ctx, p, err, s.agree(ctx, h))
}

// confirm returns the permit, unless a resize came before the slot was held; from then on that slot keeps its
// number.
func (s *Semaphore) confirm(ctx context.Context, p *Permit, err, disagree error) (*Permit, error) {
	switch {
	case p == nil && api.CodeOf(disagree) == api.InvalidArgument:
		return nil, disagree // explains err: the slot is gone
	case p == nil:
		return nil, hold.Ended(ctx, err, "acquire", s.dir)
	case disagree != nil:
		_ = p.Release(ctx)
		return nil, hold.Ended(ctx, disagree, "acquire", s.dir)
	}
	return p, nil
}

func sizeFault(op string, n int, dir string) error {
	if n < 1 || n > MaxSlots {
		return &api.Error{Code: api.InvalidArgument, Op: op, Path: dir, Message: fmt.Sprintf("a semaphore of %d; want 1 to %d", n, MaxSlots)}
	}
	return nil
}

// agree compares the size with the directory's. In a session that caches it makes no call.
func (s *Semaphore) agree(ctx context.Context, h *client.Handle) error {
	n, _, err := readSize(ctx, h)
	if err == nil && n != s.n {
		err = &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: s.dir,
			Message: fmt.Sprintf("this semaphore was made for %d, and the directory says %d; make all of one size, or resize the semaphore", s.n, n)}
	}
	return err
}

func readSize(ctx context.Context, h *client.Handle) (int, api.Stat, error) {
	text, stat, err := h.Contents(ctx)
	if err != nil {
		return 0, stat, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > MaxSlots {
		return 0, stat, &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: h.Path(),
			Message: fmt.Sprintf("%q is not the size of a semaphore; is the directory one of something else?", text)}
	}
	return n, stat, nil
}

// ResizeSemaphore changes the size of a semaphore. It waits for its turn as Acquire does, and, to remove
// slots, until those with the highest numbers are free, so that holders never exceed the directory's size.
// Callers of Acquire wait until it ends, even if other slots are free. A Semaphore made with the old size is
// rejected from then on, but keeps its slots. If an operator takes away a vacated slot, the error says so,
// and the size is unchanged. Once all are vacated, the size is written slot by slot: a failure may leave one
// between the two. It creates an absent semaphore with that size.
func ResizeSemaphore(ctx context.Context, c *client.Client, dir string, n int) error {
	if err := sizeFault("resize", n, dir); err != nil {
		return err
	}
	s := NewSemaphore(c, dir, n)
	h, err := s.door.Enter(ctx, fmt.Sprintf("resize to %d", n), nil)
	if err != nil {
		return hold.Ended(ctx, err, "resize", dir)
	}
	defer s.door.Leave(ctx, h)
	was, stat, err := readSize(ctx, h)
	if err != nil {
		return err
	}
	// It ends when a slot is lost, and with it all waits: for slots, and, in a write, for caches to drop the
	// file. The cell extends no lease until the slot is released.
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	surplus, err := s.vacate(within, cancel, was)
	defer func() {
		var handles []*client.Handle
		for _, one := range surplus {
			handles = append(handles, one.Handle)
		}
		hold.Leave(ctx, handles...)
	}()
	if err == nil {
		err = s.write(within, h, stat, surplus)
	}
	if err != nil {
		return s.unresized(ctx, within, err)
	}
	for _, one := range surplus {
		_ = one.Handle.Delete(ctx) // the size is changed, and an unused file is harmless
	}
	return nil
}

// vacate takes the slots from the new size up to the old one, in order. It returns those it has also with an
// error, for the caller to close. It calls lost for a lost one.
func (s *Semaphore) vacate(ctx context.Context, lost context.CancelCauseFunc, was int) (surplus []*hold.Held, err error) {
	for slot := s.n; slot < was; slot++ {
		path := s.dir + "/" + slotName(slot)
		reason := fmt.Sprintf("resize from %d to %d", was, s.n)
		one, err := hold.Take(ctx, s.c, path, client.OpenOptions{Write: true, Create: client.File}, api.Exclusive, false, client.Reason(reason))
		if err != nil {
			return surplus, err
		}
		surplus = append(surplus, one)
		context.AfterFunc(one.Lock.Context(), func() { lost(context.Cause(one.Lock.Context())) })
	}
	return surplus, nil
}

// write writes the size, if it is still that of stat. To remove a slot it must hold it, and a write has one
// such condition: so the slots go one by one, the highest first.
func (s *Semaphore) write(ctx context.Context, h *client.Handle, stat api.Stat, surplus []*hold.Held) error {
	if len(surplus) == 0 {
		_, err := h.SetContents(ctx, []byte(strconv.Itoa(s.n)), client.IfGeneration(stat.Content))
		return err
	}
	for i, one := range slices.Backward(surplus) {
		var err error
		//mutant: stat, err = h.SetContents(ctx, []byte(strconv.Itoa(s.n+i)), client.IfGeneration(stat.Content)); _ = one //by TestVacatedSlotIsBrokenUnheard of ./client/recipe
		stat, err = h.SetContents(ctx, []byte(strconv.Itoa(s.n+i)), client.IfGeneration(stat.Content), client.IfSequencer(one.Lock.Sequencer()))
		if err != nil {
			return err
		}
	}
	return nil
}

// unresized is the error of a resize: that a slot was lost, if so. within knows why, unless the event has not
// come yet.
func (s *Semaphore) unresized(ctx, within context.Context, err error) error {
	why := context.Cause(within)
	if why == nil && errors.Is(err, api.BadSequencer) {
		why = &api.Error{Code: api.LockLost, Op: "hold", Path: s.dir, Err: err}
	}
	if ctx.Err() == nil && why != nil {
		return fmt.Errorf("resize %s: a slot that had been vacated was lost: %w", s.dir, why)
	}
	return hold.Ended(ctx, err, "resize", s.dir)
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
		if hold.Busy(err) {
			p, err = s.first(ctx, taken, o)
		} else {
			hold.Leave(ctx, slices.Collect(maps.Values(taken))...)
		}
		if err == nil && p.Err() != nil { // it was lost meanwhile
			hold.Leave(ctx, p.hold.Handle)
			continue
		}
		//mutant: if true { //by TestTakenFromWhoWaitsForAll of ./client/recipe
		if err == nil || !hold.Passing(err) {
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
			return &Permit{&held{&hold.Held{Client: s.c, Handle: h, Lock: l}}, slot}, taken, nil
		}
		if h != nil {
			taken[slot] = h
		}
		var e *api.Error
		switch {
		case hold.Busy(err) && errors.As(err, &e):
			busy.Holders = append(busy.Holders, e.Holders...)
			if e.Code == api.LockDelayed && (busy.Remaining == 0 || e.Remaining < busy.Remaining) {
				busy.Code, busy.Remaining = api.LockDelayed, e.Remaining
			}
		case hold.Unusable(err):
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
		h, err := s.c.Open(ctx, s.dir+"/"+slotName(slot), client.OpenOptions{Write: true, Create: client.File, LockDelay: hold.Delay(o.LockDelay)})
		if err != nil {
			return nil, nil, err
		}
		//mutant: l, err := h.TryAcquire(ctx, api.Shared, client.Reason(o.Reason)) //by TestSemaphore of ./client/recipe
		l, err := h.TryAcquire(ctx, api.Exclusive, client.Reason(o.Reason))
		if err == nil || !hold.Unusable(err) {
			return h, l, err
		}
		hold.Leave(ctx, h)
		//mutant: if true { //by TestSlotIsDeletedWhenItIsTried of ./client/recipe
		if !hold.Gone(err) {
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
	p := &Permit{&held{&hold.Held{Client: s.c, Handle: slots[had.slot], Lock: had.lock}}, had.slot}
	if had.err == nil {
		delete(slots, had.slot)
	}
	hold.Leave(ctx, slices.Collect(maps.Values(slots))...)
	waits.Wait() // closing its handle released a second lock
	if had.err != nil {
		return nil, had.err
	}
	return p, nil
}
