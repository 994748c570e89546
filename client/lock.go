package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// Margin is how long before the first moment at which another could hold it a
// lock's context is cancelled: a twelfth of lease and lock-delay together, at
// most one second. It is the time that the work under the lock has to stop.
func Margin(lease, lockDelay time.Duration) time.Duration {
	return min(time.Second, (lease+lockDelay)/12)
}

// Lock is a lock that was acquired through a handle. Its methods may be called
// from several goroutines. Release it, also when it was lost: that says that the
// work under it has stopped, and makes room for another Acquire.
type Lock struct {
	handle *Handle
	mode   api.LockMode
	seq    sequencer.Sequencer
	ctx    context.Context //nolint:containedctx // it is the lock's, handed out by Context
	cancel context.CancelCauseFunc
	let    chan struct{} // closed when its owner has let go: that is what may be acknowledged

	mu      sync.Mutex // guards what follows
	taken   *api.Error // what the cell said when it took the lock away
	dropped bool       // released, or its handle closed
	free    bool       // let is closed
}

// newLock returns the lock that was granted; its context ends with the session,
// and earlier once sessionState.trackLock knows of it.
func newLock(h *Handle, mode api.LockMode, g *chubbypb.Granted) (*Lock, error) {
	seq, err := sequencer.Parse(g.GetSequencer())
	if err != nil {
		return nil, &api.Error{Code: api.Corrupt, Op: "acquire", Path: h.path, Message: "the cell granted the lock with a sequencer that cannot be read", Err: err}
	}
	l := &Lock{handle: h, mode: mode, seq: seq, let: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(h.client.session.ended)
	return l, nil
}

// Context is that of the work under the lock. It is cancelled, with a cause, a
// Margin before the first moment at which another could hold the lock
// (LeaseNearEnd), by the local clock; or at once, when the cell has taken the
// lock away (LockTaken), when the session is gone (SessionExpired), and when
// the lock is released or its handle or client closed. Use context.Cause, or
// Err, to know which. It does not end with the context that Acquire was given.
func (l *Lock) Context() context.Context { return l.ctx }

// Sequencer describes the lock to the servers that it protects: send it with
// every request to them, and let them check it (Chubby §2.4).
func (l *Lock) Sequencer() sequencer.Sequencer { return l.seq }

// Token is the sequencer reduced to one number, which grows with every change
// of owner of this lock: a fencing token.
func (l *Lock) Token() uint64 { return l.seq.Token() }

// Mode returns the mode the lock is held in.
func (l *Lock) Mode() api.LockMode { return l.mode }

// Path returns the path of the lock's node.
func (l *Lock) Path() string { return l.handle.path }

// ExclusiveUntil returns how long from now, at the least, nobody else can hold
// the lock in a conflicting mode, even if the session is never extended again:
// what is left of lease and lock-delay. Work that has not stopped by then may
// meet its successor. It is 0 once the lock was taken away, or let go.
func (l *Lock) ExclusiveUntil() time.Duration {
	l.mu.Lock()
	over := l.taken != nil || l.dropped
	l.mu.Unlock()
	if over {
		return 0
	}
	return l.handle.client.session.exclusiveFor(l.handle.delay)
}

// Err looks at the clock and returns why the lock may not be relied on any
// more, nil while it may.
func (l *Lock) Err() error {
	l.handle.client.State()
	return context.Cause(l.ctx)
}

// lose takes note that the cell has taken the lock away; it reports whether
// that is news, and matters to somebody.
func (l *Lock) lose(explanation string) bool {
	l.mu.Lock()
	if l.taken != nil || l.dropped {
		l.mu.Unlock()
		return false
	}
	why := &api.Error{Code: api.LockLost, Op: "hold", Path: l.handle.path, Err: LockTaken, Message: explanation}
	l.taken = why
	l.mu.Unlock()
	c := l.handle.client
	l.cancel(why)
	c.session.untrackLock(l)
	c.notifier.log(func() {
		c.cfg.Logger.Error("a lock was taken away", "path", l.handle.path, "token", l.Token(), "session", c.session.id, "error", why)
	})
	return true
}

// drop takes note that the owner has let go; it reports whether it had not, and
// what the cell had said before.
func (l *Lock) drop(explanation string) (first bool, taken *api.Error) {
	l.mu.Lock()
	first, l.dropped = !l.dropped, true
	taken = l.taken
	l.mu.Unlock()
	if first {
		l.cancel(&api.Error{Code: api.NotHeld, Op: "hold", Path: l.handle.path, Err: LockReleased, Message: explanation})
		l.handle.client.session.untrackLock(l)
		l.letGo()
	}
	return first, taken
}

// letGo takes note that the work under the lock has stopped, by the word of its
// owner. Nothing else closes let, for an acknowledgement may follow.
func (l *Lock) letGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.free {
		l.free = true
		close(l.let)
	}
}

// isLet reports whether the owner has let go.
func (l *Lock) isLet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free
}

// Release gives the lock up; its context is cancelled first. Nil means that it
// was held until now: LockLost says that it had been taken away before, and
// SessionExpired that it went with its session. Either way it is to be called:
// others wait for it, as it says that the work under the lock has stopped. If
// ctx has been cancelled, also before the call, it has PartingTime more (see
// Parting). If there is no answer by then it returns Uncertain, and the lock is
// released in the background. Later calls do nothing.
func (l *Lock) Release(ctx context.Context) error {
	first, taken := l.drop("it was released")
	if !first {
		return nil
	}
	h := l.handle
	h.part(l)
	ctx, cancel := h.client.Parting(ctx)
	defer cancel()
	send := releaser(h.key(), l.seq.Generation)
	err := h.client.mutate(ctx, mutation{op: "release", path: h.path, send: send, mustComplete: true,
		settle: func(ctx context.Context, number uint64) {
			_ = h.client.insist(ctx, "release", h.path, number, classCleanup, send)
		}})
	switch {
	case taken != nil:
		return about(taken, "release", h.path) // whatever the cell answers: it may know of the lock no more
	case errors.Is(err, api.NotHeld):
		return &api.Error{Code: api.LockLost, Op: "release", Path: h.path, Message: "the lock had been lost before it was released", Err: err}
	}
	return err
}

func releaser(handle []byte, generation api.Generation) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.control().chubby.Release(ctx, &chubbypb.ReleaseRequest{Caller: caller, Mutation: m, Handle: handle, Generation: uint64(generation)})
		return err
	}
}
