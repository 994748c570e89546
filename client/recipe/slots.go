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

// NoLockDelay is a LockDelay with which the locks of a failed holder are free when its lease ends. It is for
// work whose servers check sequencers.
const NoLockDelay time.Duration = -1

func delayOf(option time.Duration) time.Duration {
	switch option {
	case 0:
		return api.DefaultLockDelay
	case NoLockDelay:
		return 0
	}
	return option
}

// ending runs the end of something held, once. Callers may stop waiting and wait again. It runs until the
// cell has answered or the session has ended, even after the caller's deadline.
type ending struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  error
}

// run does act, or waits for another call's. It waits until ctx has ended, and client.CleanupTime more if ctx
// was cancelled (client.Client.CleanupContext); then the error is Uncertain, and act goes on in the
// background.
func (e *ending) run(ctx context.Context, c *client.Client, op, path string, act func(ctx context.Context) error) error {
	ctx, cancel := c.CleanupContext(ctx)
	defer cancel()
	e.once.Do(func() {
		e.done = make(chan struct{})
		go func() {
			defer close(e.done)
			e.err = act(context.WithoutCancel(ctx))
		}()
	})
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
	}
	select {
	case <-e.done:
		return e.err
	default:
	}
	return &api.Error{Code: api.Uncertain, Op: op, Path: path, Err: ctx.Err(),
		Message: "it goes on in the background until the cell answers; call it again to wait for that"}
}

// leave closes handles, all at once, and releases their locks, also after ctx has ended
// (client.Client.CleanupContext). It waits at most leaveTime; the rest goes on in the background.
func leave(ctx context.Context, handles ...*client.Handle) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range handles {
		all.Go(func() { _ = h.Close(ctx) }) // the session's end closes the rest
	}
	all.Wait()
}

// giveUp releases an unwanted lock, or confirms that no work runs under a lost one.
func giveUp(ctx context.Context, l *client.Lock) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = l.Release(ctx) // continues in the background
}

// isBusy reports whether a tried lock was not had, and should be waited for. LockLost: an operator took it
// before the answer came.
func isBusy(err error) bool {
	//mutant: return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) //by TestTakenInTheMomentOfTheGrant of ./client/recipe
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) || errors.Is(err, api.LockLost)
}

// passing reports whether the wait for a lock may be repeated: its file was deleted, or an operator took the
// lock before the answer came. The caller opens the file and waits again.
func passing(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.LockLost) }

// held is a lock with a handle of its own, which only Release gives up.
type held struct {
	c      *client.Client
	handle *client.Handle
	lock   *client.Lock
	end    ending
}

// take opens a node and waits for its lock; try takes it only if it is free.
func take(ctx context.Context, c *client.Client, path string, o client.OpenOptions, mode api.LockMode, try bool, options ...client.LockOption) (*held, error) {
	h, err := c.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	acquire := h.Acquire
	if try {
		acquire = h.TryAcquire
	}
	l, err := acquire(ctx, mode, options...)
	if err != nil {
		leave(ctx, h)
		return nil, err
	}
	return &held{c: c, handle: h, lock: l}, nil
}

// Context is that of the work under the lock; it ends as client.Lock's does.
func (h *held) Context() context.Context { return h.lock.Context() }

// Done is closed when Context ends.
func (h *held) Done() <-chan struct{} { return h.Context().Done() }

// Err checks the clock, and returns why the lock is unreliable, or nil.
func (h *held) Err() error { return h.lock.Err() }

// Path returns the path of the lock's file.
func (h *held) Path() string { return h.handle.Path() }

// Lock returns the lock, for its sequencer and token. Only Release releases it.
func (h *held) Lock() *client.Lock { return h.lock }

// Release releases the lock, and returns as client.Lock.Release does. After
// Uncertain it goes on in the background; another call waits for it again.
func (h *held) Release(ctx context.Context) error {
	return h.end.run(ctx, h.c, "release", h.Path(), func(ctx context.Context) error {
		err := h.lock.Release(ctx)
		if closing := h.handle.Close(ctx); err == nil {
			err = closing
		}
		return err
	})
}

// openIn opens a file of a recipe's directory, and makes an absent directory.
func openIn(ctx context.Context, c *client.Client, dir, name string, o client.OpenOptions) (*client.Handle, error) {
	h, err := c.Open(ctx, dir+"/"+name, o)
	if !errors.Is(err, api.NotFound) {
		return h, err
	}
	d, err := c.Open(ctx, dir, client.OpenOptions{Read: true, Create: client.Directory})
	if err != nil {
		return nil, err
	}
	leave(ctx, d)
	return c.Open(ctx, dir+"/"+name, o)
}
