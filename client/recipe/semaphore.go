package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	// LockDelay is how long nobody may have the slot of a holder that has failed, after its lease: at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
	// Reason is shown to those who look who holds the slots; at most api.MaxReason bytes.
	Reason string
	// Weight is how many slots the permit is of, 1 to the n of the semaphore; 0 is 1.
	Weight int
}

// weight returns how many slots are wanted.
func (o SemaphoreOptions) weight() int { return max(o.Weight, 1) }

// NewSemaphore returns a semaphore of n, 1 to MaxSlots. It asks nobody: the directory is made by the
// first Acquire, in one that is there, with the n of that; from then on another n is refused
// (ResizeSemaphore).
func NewSemaphore(c *client.Client, dir string, n int) *Semaphore {
	return &Semaphore{c: c, dir: dir, n: n, door: newTurnstile(c, dir, []byte(strconv.Itoa(n)))}
}

// Acquire waits until there is room, first come, first served, and returns a permit. If ctx ends
// before, the error is DeadlineExceeded or Cancelled, and nothing is held. A directory of another size
// is InvalidArgument, which names both; so is a weight that is more than the size.
func (s *Semaphore) Acquire(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	if err := s.fault(o); err != nil {
		return nil, err
	}
	for {
		p, lost, err := s.inTurn(ctx, o)
		if !lost {
			return p, err
		}
	}
}

// inTurn waits for its turn, and for a permit. It reports whether the turn was lost before.
func (s *Semaphore) inTurn(ctx context.Context, o SemaphoreOptions) (p *Permit, lost bool, err error) {
	agree := func(h *client.Handle) error { return s.agree(ctx, h) }
	h, turn, err := s.door.enterTurn(ctx, o.Reason, agree)
	if err != nil {
		return nil, false, ended(ctx, err, "acquire", s.dir)
	}
	defer s.door.leave(ctx, h)
	p, lost, err = s.take(ctx, turn, o)
	if lost {
		return nil, true, nil
	}
	p, err = s.confirm(ctx, p, err, agree(h))
	return p, false, err
}

// TryAcquire returns a permit if there are free slots. It does not stand in line, and may overtake
// those who do, but none for whom it is the turn. If too few are free it is LockHeld, with the holders of the
// others; if some are not held but wait for a lock-delay, LockDelayed, with the shortest. Of two that try for
// several at the same moment, neither may get them.
func (s *Semaphore) TryAcquire(ctx context.Context, o SemaphoreOptions) (*Permit, error) {
	if err := s.fault(o); err != nil {
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
	mine, taken, err := s.trySlots(ctx, nil, o)
	leaveSlots(ctx, taken)
	var p *Permit
	if err == nil {
		p = s.permit(mine)
	} else {
		//mutant: /* nothing */ //by TestSemaphoreOfWeight of ./client/recipe
		letGo(ctx, mine)
	}
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
		_ = p.Release(ctx)
		return nil, ended(ctx, disagree, "acquire", s.dir)
	}
	return p, nil
}

func (s *Semaphore) fault(o SemaphoreOptions) error {
	if o.Weight < 0 || o.Weight > s.n && s.n > 0 {
		return &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: s.dir, Message: fmt.Sprintf("a permit of %d slots, of a semaphore of %d; want 1 to %d, or 0 for 1", o.Weight, s.n, s.n)}
	}
	return sizeFault("acquire", s.n, s.dir)
}

func sizeFault(op string, n int, dir string) error {
	if n < 1 || n > MaxSlots {
		return &api.Error{Code: api.InvalidArgument, Op: op, Path: dir, Message: fmt.Sprintf("a semaphore of %d; want 1 to %d", n, MaxSlots)}
	}
	return nil
}

// agree compares the size with that of the directory. In a session that caches it makes no call.
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

// ResizeSemaphore changes the size of a semaphore. It waits for its turn as Acquire does, and if there
// are to be fewer slots, until those with the highest numbers are free, so that there are never more
// holders than the directory says. It is its turn meanwhile: who calls Acquire waits until the size is
// changed, or ctx has ended, also if other slots are free. A Semaphore that was made with another size is
// refused from then on, and what it holds it keeps. If a slot that it has vacated is lost to it (an operator
// took it away), the error says so, and the size is as it was. Once all are vacated the size is written slot by
// slot: what fails then may leave one between the two. A semaphore that is not there is made, of that size.
func ResizeSemaphore(ctx context.Context, c *client.Client, dir string, n int) error {
	if err := sizeFault("resize", n, dir); err != nil {
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
		//mutant: stat, err = h.SetContents(ctx, []byte(strconv.Itoa(s.n+i)), client.IfGeneration(stat.Content)); _ = one //by TestVacatedSlotIsBrokenUnheard of ./client/recipe
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
