package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// Margin is how long a lock's context is cancelled before another could hold the lock: a twelfth of lease and
// lock-delay together, at most one second. The work under the lock has that time to stop.
func Margin(lease, lockDelay time.Duration) time.Duration {
	return min(time.Second, (lease+lockDelay)/12)
}

// Lock is a lock acquired through a handle. Its methods may be called from several goroutines. Release it,
// also after it was lost: that says that the work under the lock has stopped, and allows another Acquire
// through the handle.
type Lock struct {
	handle   *Handle
	terms    lockTerms
	seq      sequencer.Sequencer
	firstUse *Lock           // of the same grant: itself, unless the lock was kept (see handleLock)
	ctx      context.Context //nolint:containedctx // it is the lock's, handed out by Context
	cancel   context.CancelCauseFunc
	// read says that the program has read seq. If not, no server can reject a former holder; the cell hears that at
	// the release (a finding of Lint).
	read     atomic.Bool
	released chan struct{} // closed when the owner has released the lock: then the client may acknowledge its loss

	mu         sync.Mutex      // guards what follows; take no mutex under it
	takenError *api.Error      // why the cell took the lock away, or nil
	givenUp    bool            // by Release, or by Close of the handle
	heldSince  session.Instant // when Acquire returned it, if measured; else 0
}

type lockTerms struct {
	mode       api.LockMode
	reason     string
	ownsHandle bool // Client.Acquire opened the handle for this lock: Release closes it
}

// newLock returns a granted lock. Its context ends with the session, and, once sessionState.trackLock knows
// the lock, in time.
func newLock(h *Handle, terms lockTerms, seq sequencer.Sequencer) *Lock {
	l := &Lock{handle: h, terms: terms, seq: seq, released: make(chan struct{})}
	l.firstUse = l
	l.ctx, l.cancel = context.WithCancelCause(sequencer.NewContext(h.client.session.ended, l))
	return l
}

// Context returns the context for the work under the lock. It is cancelled, with a cause, a Margin before
// another could hold the lock (LeaseNearEnd), by the local clock. It is cancelled at once when the cell takes
// the lock away (LockTaken), when the session is gone (SessionExpired), and when the lock is released or its
// handle or client closed. Err also says which. For a context that ends with Acquire's too, see With.
//
// sequencer.FromContext finds the lock's sequencer in it.
func (l *Lock) Context() context.Context { return l.ctx }

// With returns a context for work that should end with ctx or with the lock. It has the values and the
// deadline of ctx, and ends, with the cause, when ctx or Context does, or at once if the lock is unreliable
// by the clock. sequencer.FromContext finds the lock's sequencer in it. Call the function when the work has
// ended: like that of context.WithCancel it frees resources, and releases nothing.
func (l *Lock) With(ctx context.Context) (context.Context, context.CancelFunc) {
	l.handle.client.State() // checks the clock, and so whether the lock's context has ended
	//mutant: return endingWith(ctx, l.ctx)
	return endingWith(sequencer.NewContext(ctx, l), l.ctx)
}

// Sequencer returns the sequencer of the lock: send it with every request to the servers that the lock
// protects, and let them check it (Chubby §2.4).
func (l *Lock) Sequencer() sequencer.Sequencer {
	l.read.Store(true)
	return l.seq
}

// Token returns the fencing token of the lock: the generation in its sequencer, which grows each time the
// lock becomes held.
func (l *Lock) Token() uint64 { return l.Sequencer().Token() }

// Mode returns the mode the lock is held in.
func (l *Lock) Mode() api.LockMode { return l.terms.mode }

// Path returns the path of the lock's node.
func (l *Lock) Path() string { return l.handle.path }

// ExclusiveUntil returns how long from now no other session can hold the lock in a conflicting mode, even
// without an extension: the rest of lease and lock-delay. It is 0 once the lock was taken away or given up.
func (l *Lock) ExclusiveUntil() time.Duration {
	l.mu.Lock()
	lost := l.takenError != nil || l.givenUp
	l.mu.Unlock()
	if lost {
		return 0
	}
	return l.handle.client.session.exclusiveFor(l.handle.openedFor.delay)
}

// Err checks the clock, and returns why the lock is unreliable, or nil.
func (l *Lock) Err() error {
	l.handle.client.State()
	return context.Cause(l.ctx)
}

// markTaken records that the cell has taken the lock away. It returns false if that was known, or the owner
// has given the lock up.
func (l *Lock) markTaken(explanation string) bool {
	l.mu.Lock()
	if l.takenError != nil || l.givenUp {
		l.mu.Unlock()
		return false
	}
	why := &api.Error{Code: api.LockLost, Op: "hold", Path: l.handle.path, Err: LockTaken, Message: explanation}
	l.takenError = why
	l.mu.Unlock()
	c := l.handle.client
	l.cancel(why)
	c.session.untrackLock(l)
	c.notifier.enqueueLog(func() {
		c.cfg.Logger.Error("a lock was taken away", "path", l.handle.path, "token", l.seq.Token(), "session", c.session.id, "error", why)
	})
	return true
}

// giveUp records that the owner has given the lock up. It returns whether this is the first call, and why the
// cell had taken the lock away before, if so.
func (l *Lock) giveUp(explanation string) (first bool, taken *api.Error) {
	l.mu.Lock()
	first, l.givenUp = !l.givenUp, true
	taken = l.takenError
	l.mu.Unlock()
	if first {
		l.cancel(&api.Error{Code: api.NotHeld, Op: "hold", Path: l.handle.path, Err: LockReleased, Message: explanation})
		l.handle.client.session.untrackLock(l)
		l.markReleased()
	}
	return first, taken
}

// markReleased records the owner's word that the work under the lock has stopped. Only it may close released,
// which allows the client to acknowledge a loss.
func (l *Lock) markReleased() {
	l.mu.Lock()
	if l.isReleased() {
		l.mu.Unlock()
		return
	}
	close(l.released)
	since := l.heldSince
	l.mu.Unlock()
	c := l.handle.client.cell
	c.cfg.Meter.released(l.terms.mode, c.cfg.Clock, since)
}

func (l *Lock) isReleased() bool {
	select {
	case <-l.released:
		return true
	default:
		return false
	}
}

// markHeld notes the moment before the owner gets the lock.
func (l *Lock) markHeld() {
	c := l.handle.client.cell
	if c.cfg.Meter == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heldSince = c.cfg.Clock()
}

// Release cancels the lock's context, then gives the lock up. Nil means that the lock was held until now.
// LockLost says that it had been taken away, and SessionExpired that it was lost with its session. Call
// Release in these cases too: it says that the work under the lock has stopped, for which others may wait. If
// ctx has been cancelled, also before the call, Release has CleanupTime more (see CleanupContext). Without an
// answer it returns Uncertain, and goes on in the background. Later calls do nothing. For a lock from
// Client.Acquire, it also closes the handle.
func (l *Lock) Release(ctx context.Context) error {
	if !l.terms.ownsHandle {
		return l.release(ctx)
	}
	ctx, cancel := l.handle.client.CleanupContext(ctx) // one for both
	defer cancel()
	err := l.release(ctx) // separate, as Close does not say whether the lock was held until now
	if closing := l.handle.Close(ctx); err == nil {
		err = closing
	}
	return err
}

func (l *Lock) release(ctx context.Context) error {
	first, taken := l.giveUp("it was released")
	if !first {
		return nil
	}
	h := l.handle
	if taken == nil && h.lock.keep(l) {
		return nil
	}
	h.clearLock(l)
	ctx, cancel := h.client.CleanupContext(ctx)
	defer cancel()
	send := releaseSender(h.currentToken(), l.seq.Generation, !l.read.Load())
	//mutant: err := h.client.mutate(ctx, mutation{op: "release", path: h.path, send: send})
	err := h.client.mutate(ctx, mutation{op: "release", path: h.path, send: send, mustComplete: true})
	switch {
	case taken != nil:
		return withOperation(taken, "release", h.path) // whatever the answer: the cell may not know the lock any more
	case errors.Is(err, api.NotHeld):
		return &api.Error{Code: api.LockLost, Op: "release", Path: h.path, Message: "the lock had been lost before it was released", Err: err}
	}
	return err
}

func releaseSender(handle []byte, generation api.Generation, unread bool) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		//mutant: _, err := t.data.chubby.Release(ctx, &chubbypb.ReleaseRequest{
		_, err := t.control().chubby.Release(ctx, &chubbypb.ReleaseRequest{
			Caller: caller, Mutation: m, Handle: handle, Generation: uint64(generation), SequencerUnread: unread,
		})
		return err
	}
}

// lockDeadline returns when a lock's context ends without another grant; mu is held.
func (s *sessionState) lockDeadline(l *Lock) session.Instant {
	delay := l.handle.openedFor.delay
	return s.local.FreeAt(delay).Add(-Margin(s.local.Lease(), delay))
}

// nextLockDeadline returns the earliest deadline of a lock, if any; mu is held. All locks depend on the same
// lease, so the lock with the shorter lock-delay is due first, whatever grants come.
func (s *sessionState) nextLockDeadline() (session.Instant, bool) {
	l, _, ok := s.locks.Next()
	if !ok {
		return 0, false
	}
	return s.lockDeadline(l), true
}

// endDueLocks ends the contexts of locks after their deadlines; mu is held.
func (s *sessionState) endDueLocks(now session.Instant) {
	for {
		l, _, ok := s.locks.Next()
		if !ok || now < s.lockDeadline(l) {
			return
		}
		s.locks.Drop(l)
		left := s.local.FreeAt(l.handle.openedFor.delay).Sub(now)
		s.notifier.enqueueLog(func() {
			s.cfg.Logger.Error("a lock may not be relied on any more", "path", l.handle.path, "token", l.seq.Token(), "session", s.id, "left", left)
		})
		l.cancel(&api.Error{Code: api.LockLost, Op: "hold", Path: l.handle.path, Err: LeaseNearEnd,
			Message: "no master has extended the lease, and another could hold the lock soon; stop the work it protects, then release it"})
	}
}

// trackLock makes the lock's context end at the lock's deadline. After the deadline it waits for an extension
// of the lease.
func (s *sessionState) trackLock(ctx context.Context, l *Lock) error {
	var why *api.Error
	_, err := s.await(ctx, func(state session.State) bool {
		why = s.endError
		return s.trackIfSafe(l, state, s.clock()) || why != nil
	})
	if why != nil {
		err = why
	}
	return err
}

// trackIfSafe makes the lock's context end at the lock's deadline, unless the deadline has passed by now or the
// session is not safe. It reports whether it did; mu is held.
func (s *sessionState) trackIfSafe(l *Lock, state session.State, now session.Instant) bool {
	if state != session.Safe || now >= s.lockDeadline(l) {
		return false
	}
	//mutant: s.locks.Put(l, -session.Instant(l.handle.openedFor.delay))
	s.locks.Put(l, session.Instant(l.handle.openedFor.delay))
	wakeUp(s.wake)
	return true
}

func (s *sessionState) untrackLock(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks.Drop(l)
}

// exclusiveFor returns how long no other session can hold a lock of this one with that lock-delay; 0 if the
// cell has ended the session.
func (s *sessionState) exclusiveFor(delay time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(s.clock())
	if s.endError != nil && s.endError.Err != GraceOver { //nolint:errorlint // setGone set it, unwrapped
		return 0
	}
	return max(s.local.FreeAt(delay).Sub(s.clock()), 0)
}
