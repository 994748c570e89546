package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// lockDeadline returns when a lock's context ends without another grant; mu is held.
func (s *sessionState) lockDeadline(l *Lock) session.Instant {
	delay := l.handle.delay
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
		left := s.local.FreeAt(l.handle.delay).Sub(now)
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
		tracked := state == session.Safe && s.clock() < s.lockDeadline(l)
		if tracked {
			//mutant: s.locks.Put(l, -session.Instant(l.handle.delay))
			s.locks.Put(l, session.Instant(l.handle.delay))
			wakeUp(s.wake)
		}
		return tracked || why != nil
	})
	if why != nil {
		err = why
	}
	return err
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
