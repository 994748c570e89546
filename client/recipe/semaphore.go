package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// MaxSlots is the most that a Semaphore can be of: whoever is next waits for all slots at once, and
// a session has at most api.MaxOutstanding requests under way.
const MaxSlots = 100

// Semaphore lets at most n hold it at a time, in the whole cell. It is a directory with a lock file
// for each slot, and one, the turnstile, that orders those who wait.
//
// The invariant: to hold a permit is to hold, exclusively, the lock of a slot whose number is below
// the size that stands in the directory. So there are never more permits than that, on the same terms
// as with any lock: a holder that has failed keeps its slot until lease and lock-delay are over, and
// knows a margin before (Permit.Context). The turnstile is for order and thrift, not for safety: whoever
// has it takes a free slot, or waits for all of them and takes the first; then the next has it. So one at
// a time waits for all slots, however many come.
//
// Its methods may be called from several goroutines; of one Semaphore 32 are in the cell's queue at a
// time, and the others wait here. All semaphores of a client share the 192 places that a session has in
// queues; slots for which there is none are tried every few seconds (client.Handle.Acquire).
type Semaphore struct {
	c    *client.Client
	dir  string
	n    int
	door *turnstile
}

// SemaphoreOptions qualify Acquire and TryAcquire.
type SemaphoreOptions struct {
	// LockDelay is how long nobody may have the slot of a holder that has failed, after its lease: 0 to
	// api.MaxLockDelay. api.DefaultLockDelay is a good choice where the servers that the holders work with
	// do not check sequencers.
	LockDelay time.Duration
	// Reason is shown to those who look who holds the slots; at most api.MaxReason bytes.
	Reason string
}

// Permit is one of the n. Release it, also when it was lost.
type Permit struct {
	held *held
	slot int
}

// NewSemaphore returns a semaphore of n, 1 to MaxSlots. It asks nobody: the directory is made by the
// first Acquire, in one that is there, with the n of that; from then on another n is refused
// (ResizeSemaphore).
func NewSemaphore(c *client.Client, dir string, n int) *Semaphore {
	return &Semaphore{c: c, dir: dir, n: n, door: newTurnstile(c, dir, []byte(strconv.Itoa(n)))}
}

// Acquire waits until there is room, first come, first served, and returns a permit. If ctx ends
// before, the error is DeadlineExceeded or Cancelled, and nothing is held. A directory of another size
// is InvalidArgument, which names both.
func (s *Semaphore) Acquire(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	if err := s.fault(); err != nil {
		return nil, err
	}
	agree := func(h *client.Handle) error { return s.agree(ctx, h) }
	h, err := s.door.enter(ctx, o.Reason, agree)
	if err != nil {
		return nil, ended(ctx, err, "acquire", s.dir)
	}
	defer s.door.leave(ctx, h)
	p, err := s.take(ctx, o)
	return s.confirm(ctx, p, err, agree(h))
}

// take takes a free slot, or waits for one.
func (s *Semaphore) take(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	for {
		p, slots, err := s.try(ctx, o)
		if p != nil || !isBusy(err) {
			leaveSlots(ctx, slots)
			return p, err
		}
		p, err = s.first(ctx, slots, o)
		if p != nil || !passing(err) {
			return p, err
		}
		// One slot is not what it was: its file was deleted, for example. The others may be waited for as before.
	}
}

// TryAcquire returns a permit if there is a free slot. It does not stand in line, and may overtake
// those who do, but none for whom it is the turn. If all are taken it is LockHeld, with the holders;
// if some are not but wait for a lock-delay, LockDelayed, with the shortest.
func (s *Semaphore) TryAcquire(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	if err := s.fault(); err != nil {
		return nil, err
	}
	h, err := s.door.open(ctx)
	if err != nil {
		return nil, ended(ctx, err, "try to acquire", s.dir)
	}
	defer leave(ctx, h)
	if err := s.agree(ctx, h); err != nil {
		return nil, err
	}
	p, slots, err := s.try(ctx, o)
	leaveSlots(ctx, slots)
	return s.confirm(ctx, p, err, s.agree(ctx, h))
}

// confirm returns the permit, unless the semaphore has become another's size before the slot was
// held: from then on that slot keeps its number in it.
func (s *Semaphore) confirm(ctx context.Context, p *Permit, err, disagree error) (*Permit, error) {
	switch {
	case p == nil && api.CodeOf(disagree) == api.InvalidArgument:
		return nil, disagree // which explains err: the slot is gone
	case p == nil:
		return nil, ended(ctx, err, "acquire", s.dir)
	case disagree != nil:
		_ = p.held.release(ctx)
		return nil, ended(ctx, disagree, "acquire", s.dir)
	}
	return p, nil
}

func (s *Semaphore) fault() error { return sizeFault(s.n, s.dir) }

func sizeFault(n int, dir string) error {
	if n < 1 || n > MaxSlots {
		return &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: dir, Message: fmt.Sprintf("a semaphore of %d; want 1 to %d", n, MaxSlots)}
	}
	return nil
}

// agree compares the size with that of the directory. In a session that caches it makes no call.
func (s *Semaphore) agree(ctx context.Context, h *client.Handle) error {
	n, _, err := readSize(ctx, h)
	if err == nil && n != s.n {
		err = &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: s.dir,
			Message: fmt.Sprintf("this semaphore was made for %d, and the directory says %d; make all of one size, or change the directory's with ResizeSemaphore", s.n, n)}
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

// slotName returns the name of a slot's file.
func slotName(slot int) string { return fmt.Sprintf("slot-%03d", slot) }

func (s *Semaphore) openSlot(ctx context.Context, slot int, o SemaphoreOptions) (*client.Handle, error) {
	return s.c.Open(ctx, s.dir+"/"+slotName(slot), client.OpenOptions{Write: true, Create: client.File, LockDelay: o.LockDelay})
}

// try takes a free slot. If none is, it returns the handles of those that are taken. A slot that cannot
// be used, because a stranger has put something else in its place, is passed over as long as there are
// others.
func (s *Semaphore) try(ctx context.Context, o SemaphoreOptions) (*Permit, []slotHandle, error) {
	var taken []slotHandle
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

// slotHandle is a slot whose lock another holds.
type slotHandle struct {
	slot   int
	handle *client.Handle
}

// trySlot opens a slot and tries its lock. The handle is left open if the lock is taken. A file that was
// deleted after it was opened says nothing of the slot, which is free in the next.
func (s *Semaphore) trySlot(ctx context.Context, one *slotHandle, o SemaphoreOptions) (*client.Lock, error) {
	for {
		h, err := s.openSlot(ctx, one.slot, o)
		if err != nil {
			return nil, err
		}
		l, err := h.TryAcquire(ctx, api.Exclusive, client.Reason(o.Reason))
		if err == nil || !unusable(err) {
			one.handle = h
			return l, err
		}
		leave(ctx, h)
		if !gone(err) {
			return nil, err
		}
	}
}

func (s *Semaphore) permit(one slotHandle, l *client.Lock) *Permit {
	return &Permit{held: &held{c: s.c, handle: one.handle, lock: l}, slot: one.slot}
}

// leaveSlots closes the handles of slots.
func leaveSlots(ctx context.Context, slots []slotHandle) {
	var handles []*client.Handle
	for _, one := range slots {
		handles = append(handles, one.handle)
	}
	leave(ctx, handles...)
}

// first waits for all slots at once and takes the first that it gets. The handles are closed, which
// ends the other waits.
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
	got := <-outcomes
	leaveSlots(ctx, slices.DeleteFunc(slices.Clone(slots), func(one slotHandle) bool { return got.err == nil && one == got.one }))
	waits.Wait() // a lock that came as well was released with its handle
	if got.err != nil {
		return nil, got.err
	}
	return s.permit(got.one, got.lock), nil
}

// Slot returns the number of the slot, 0 to n-1, which is nobody else's while the permit is held: a
// name for a shard, a port, a directory.
func (p *Permit) Slot() int { return p.slot }

// Context is that of the work under the permit; it ends as that of a lock does.
func (p *Permit) Context() context.Context { return p.held.lock.Context() }

// Done is closed when Context ends.
func (p *Permit) Done() <-chan struct{} { return p.Context().Done() }

// Err checks the clock, and returns why the permit may not be relied on any more, nil while it may.
func (p *Permit) Err() error { return p.held.lock.Err() }

// Path returns the path of the slot's file.
func (p *Permit) Path() string { return p.held.handle.Path() }

// Lock returns the lock of the slot, for its sequencer and token. Tokens order the holders of one
// slot; a server that checks them is told of each slot by its path. It is not to be released but by
// Release of the permit.
func (p *Permit) Lock() *client.Lock { return p.held.lock }

// Release gives the permit back, and returns as client.Lock.Release does. If ctx ends before the cell
// has answered it is Uncertain, and goes on in the background; another call waits for it again.
func (p *Permit) Release(ctx context.Context) error { return p.held.release(ctx) }

// ResizeSemaphore changes the size of a semaphore. It waits for its turn as Acquire does, and if there
// are to be fewer slots, until those with the highest numbers are free, so that there are never more
// holders than the directory says. It is its turn meanwhile: who calls Acquire waits until the size is
// changed, or ctx has ended, also if other slots are free. A Semaphore that was made with another size is
// refused from then on, and what it holds it keeps. If a slot that it has vacated is lost to it (an operator
// took it away), the error says so, and the size is as it was. Once all are vacated the size is written slot by
// slot: what fails then may leave one between the two.
func ResizeSemaphore(ctx context.Context, c *client.Client, dir string, n int) error {
	if err := sizeFault(n, dir); err != nil {
		return err
	}
	s := NewSemaphore(c, dir, n)
	h, err := s.door.enter(ctx, fmt.Sprintf("resize to %d", n), func(*client.Handle) error { return nil })
	if err != nil {
		return ended(ctx, err, "resize", dir)
	}
	defer s.door.leave(ctx, h)
	was, stat, err := readSize(ctx, h)
	if err != nil {
		return err
	}
	// It ends when a slot is lost, which ends what is waited for: the others, and, in a write, caches that are to
	// be dropped. The cell extends no lease until the slot is let go.
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	surplus, err := s.vacate(within, cancel, was)
	defer func() {
		var handles []*client.Handle
		for _, one := range surplus {
			handles = append(handles, one.handle)
		}
		leave(ctx, handles...)
	}()
	if err == nil {
		err = s.write(within, h, stat, surplus)
	}
	if err != nil {
		return s.unresized(ctx, within, err)
	}
	for _, one := range surplus {
		_ = one.handle.Delete(ctx) // the size is changed, and a file that nobody opens any more does no harm
	}
	return nil
}

// vacate takes the slots that are not below the size, of those that were, in their order. What it has it returns
// also with an error, for the caller to close. lost is told of one that is lost.
func (s *Semaphore) vacate(ctx context.Context, lost context.CancelCauseFunc, was int) (surplus []*held, err error) {
	for slot := s.n; slot < was; slot++ {
		path := s.dir + "/" + slotName(slot)
		reason := fmt.Sprintf("resize from %d to %d", was, s.n)
		one, err := take(ctx, s.c, path, client.OpenOptions{Write: true, Create: client.File}, api.Exclusive, false, client.Reason(reason))
		if err != nil {
			return surplus, err
		}
		surplus = append(surplus, one)
		context.AfterFunc(one.lock.Context(), func() { lost(context.Cause(one.lock.Context())) })
	}
	return surplus, nil
}

// write writes the size, if it is still that of stat. Without a slot it does so only while that is held, and a
// write has one such condition: so the slots go one by one, the highest first.
func (s *Semaphore) write(ctx context.Context, h *client.Handle, stat api.Stat, surplus []*held) error {
	if len(surplus) == 0 {
		_, err := h.SetContents(ctx, []byte(strconv.Itoa(s.n)), client.IfGeneration(stat.Content))
		return err
	}
	for i, one := range slices.Backward(surplus) {
		var err error
		stat, err = h.SetContents(ctx, []byte(strconv.Itoa(s.n+i)), client.IfGeneration(stat.Content), client.IfSequencer(one.lock.Sequencer()))
		if err != nil {
			return err
		}
	}
	return nil
}

// unresized is the error of a resize: that a slot was lost, if that is what has happened. within knows why, unless
// nothing has been heard of it yet.
func (s *Semaphore) unresized(ctx, within context.Context, err error) error {
	why := context.Cause(within)
	if why == nil && errors.Is(err, api.BadSequencer) {
		why = &api.Error{Code: api.LockLost, Op: "hold", Path: s.dir, Err: err}
	}
	if ctx.Err() == nil && why != nil {
		return fmt.Errorf("resize %s: a slot that had been vacated was lost: %w", s.dir, why)
	}
	return ended(ctx, err, "resize", s.dir)
}
