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

// Margin is how long before the first moment at which another could hold it a
// lock's context is cancelled: a twelfth of lease and lock-delay together, at
// most one second. It is the time that the work under the lock has to stop.
func Margin(lease, lockDelay time.Duration) time.Duration {
	return min(time.Second, (lease+lockDelay)/12)
}

// Lock is a lock that was acquired through a handle. Its methods may be called from
// several goroutines. Release it, also when it was lost: Release says that the work
// under the lock has stopped, and allows another Acquire through the handle.
type Lock struct {
	handle   *Handle
	mode     api.LockMode
	seq      grantedSequencer
	reason   string
	firstUse *Lock           // of the same grant: itself, unless the lock was kept since (see keptLock)
	ctx      context.Context //nolint:containedctx // it is the lock's, handed out by Context
	cancel   context.CancelCauseFunc
	released chan struct{} // closed when the owner has released the lock: then its loss may be acknowledged

	mu         sync.Mutex      // guards what follows; no other mutex is taken while it is held
	takenError *api.Error      // why the cell took the lock away; nil if it has not
	givenUp    bool            // by Release, or by Close of the handle
	heldSince  session.Instant // when Acquire returned it, if that is measured; else 0
}

// grantedSequencer is a sequencer, and whether the program has read it: without it, or the token in it, nobody can refuse a
// former holder, and the cell is told so when the lock is released (a finding of Lint).
type grantedSequencer struct {
	sequencer.Sequencer
	read atomic.Bool
}

// newLock returns a lock that was granted. Its context ends with the session; it
// ends in time, before another could hold the lock, once sessionState.trackLock knows
// the lock.
func newLock(h *Handle, mode api.LockMode, seq sequencer.Sequencer, reason string) *Lock {
	l := &Lock{handle: h, mode: mode, seq: grantedSequencer{Sequencer: seq}, reason: reason, released: make(chan struct{})}
	l.firstUse = l
	l.ctx, l.cancel = context.WithCancelCause(h.client.session.ended)
	return l
}

// Context returns the context for the work under the lock. It is cancelled, with a
// cause, a Margin before the first moment at which another could hold the lock
// (LeaseNearEnd), by the local clock. It is cancelled at once when the cell takes the
// lock away (LockTaken), when the session is gone (SessionExpired), and when the lock
// is released or its handle or client closed. Use context.Cause, or Err, to know
// which. It does not end with the context that was passed to Acquire.
func (l *Lock) Context() context.Context { return l.ctx }

// Sequencer returns the sequencer of the lock: send it with every request to the
// servers that the lock protects, and let them check it (Chubby §2.4).
func (l *Lock) Sequencer() sequencer.Sequencer {
	l.seq.read.Store(true)
	return l.seq.Sequencer
}

// Token returns the fencing token of the lock: the generation in its sequencer, which
// grows each time the lock becomes held.
func (l *Lock) Token() uint64 { return l.Sequencer().Token() }

// Mode returns the mode the lock is held in.
func (l *Lock) Mode() api.LockMode { return l.mode }

// Path returns the path of the lock's node.
func (l *Lock) Path() string { return l.handle.path }

// ExclusiveUntil returns for how long from now nobody else can hold the lock in a
// conflicting mode, even if the lease is never extended again: what is left of lease
// and lock-delay. Work that has not stopped by then may run beside that of the next
// holder. It is 0 once the lock was taken away or given up.
func (l *Lock) ExclusiveUntil() time.Duration {
	l.mu.Lock()
	lost := l.takenError != nil || l.givenUp
	l.mu.Unlock()
	if lost {
		return 0
	}
	return l.handle.client.session.exclusiveFor(l.handle.delay)
}

// Err checks the clock, and returns why the lock may not be relied on any more, nil
// while it may.
func (l *Lock) Err() error {
	l.handle.client.State()
	return context.Cause(l.ctx)
}

// markTaken notes that the cell has taken the lock away. It returns false if that was
// known before, or the owner has given the lock up.
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

// giveUp notes that the owner has given the lock up. It returns whether this is the
// first call, and why the cell had taken the lock away before, if it had.
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

// markReleased notes that the work under the lock has stopped, as its owner says.
// Nothing else may close released, because the loss of the lock may then be
// acknowledged.
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
	c.cfg.Meter.released(l.mode, c.cfg.Clock, since)
}

// isReleased reports whether markReleased was called.
func (l *Lock) isReleased() bool {
	select {
	case <-l.released:
		return true
	default:
		return false
	}
}

// markHeld notes that the lock is about to be returned to its owner.
func (l *Lock) markHeld() {
	c := l.handle.client.cell
	if c.cfg.Meter == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heldSince = c.cfg.Clock()
}

// Release gives the lock up; its context is cancelled first. Nil means that the lock
// was held until now. LockLost says that it had been taken away before, and
// SessionExpired that it was lost with its session. Call Release in these cases too:
// it says that the work under the lock has stopped, for which others may wait. If ctx
// has been cancelled, also before the call, Release has CleanupTime more (see
// CleanupContext). If there is no answer by then, it returns Uncertain, and the lock
// is released in the background. Later calls do nothing.
func (l *Lock) Release(ctx context.Context) error {
	first, taken := l.giveUp("it was released")
	if !first {
		return nil
	}
	h := l.handle
	if taken == nil && h.kept.keep(l) {
		return nil
	}
	h.clearLock(l)
	ctx, cancel := h.client.CleanupContext(ctx)
	defer cancel()
	send := releaseSender(h.currentToken(), l.seq.Generation, !l.seq.read.Load())
	err := h.client.mutate(ctx, mutation{op: "release", path: h.path, send: send, mustComplete: true,
		settle: func(ctx context.Context, number uint64) {
			_ = h.client.sendUntilAnswered(ctx, "release", h.path, number, classCleanup, send)
		}})
	switch {
	case taken != nil:
		return withOperation(taken, "release", h.path) // whatever the cell answers: it may not know the lock any more
	case errors.Is(err, api.NotHeld):
		return &api.Error{Code: api.LockLost, Op: "release", Path: h.path, Message: "the lock had been lost before it was released", Err: err}
	}
	return err
}

func releaseSender(handle []byte, generation api.Generation, unread bool) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.control().chubby.Release(ctx, &chubbypb.ReleaseRequest{
			Caller: caller, Mutation: m, Handle: handle, Generation: uint64(generation), SequencerUnread: unread,
		})
		return err
	}
}
