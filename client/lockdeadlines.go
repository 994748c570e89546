package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// deadline is when a lock's context ends if no grant comes before; mu is held.
func (b *belief) deadline(l *Lock) session.Instant {
	delay := l.handle.delay
	return b.local.FreeAt(delay).Add(-Margin(b.local.Lease(), delay))
}

// due returns when the next lock is due, and whether there is one; mu is held. All
// depend on the same lease, so of two locks the one with the shorter lock-delay is due
// first, whatever grants come.
func (b *belief) due() (session.Instant, bool) {
	l, _, ok := b.locks.Next()
	if !ok {
		return 0, false
	}
	return b.deadline(l), true
}

// cull ends the contexts of the locks that are due; mu is held.
func (b *belief) cull(now session.Instant) {
	for {
		l, _, ok := b.locks.Next()
		if !ok || now < b.deadline(l) {
			return
		}
		b.locks.Drop(l)
		left := b.local.FreeAt(l.handle.delay).Sub(now)
		b.told.log(func() {
			b.log.Error("a lock may not be relied on any more", "path", l.handle.path, "token", l.Token(), "session", b.id, "left", left)
		})
		l.cancel(&api.Error{Code: api.LockLost, Op: "hold", Path: l.handle.path, Err: LeaseNearEnd,
			Message: "no master has extended the lease, and another could hold the lock soon; stop the work it protects, then release it"})
	}
}

// hold makes the lock's context end in time. A lock whose time is over already,
// because the grant was long on its way, waits for the lease to be extended.
func (b *belief) hold(ctx context.Context, l *Lock) error {
	for {
		b.mu.Lock()
		state, why, turned := b.look(), b.why, b.turned
		if state == session.Safe && b.clock() < b.deadline(l) {
			b.locks.Put(l, session.Instant(l.handle.delay))
			b.mu.Unlock()
			b.rearm()
			return nil
		}
		b.mu.Unlock()
		if state == session.Gone {
			return why
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
}

// forget takes a lock out of those that depend on the session.
func (b *belief) forget(l *Lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locks.Drop(l)
}

// exclusive returns how long nobody else can hold a lock of this session with
// that lock-delay; 0 if the cell has ended the session.
func (b *belief) exclusive(delay time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	if b.why != nil && b.why.Err != GraceOver { //nolint:errorlint // stop set it, unwrapped
		return 0
	}
	return max(b.local.FreeAt(delay).Sub(b.clock()), 0)
}
