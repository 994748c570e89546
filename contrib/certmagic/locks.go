package chubbystorage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Lock waits until it has the lock of that name, or ctx ends. A second Lock of the same
// name waits, too, until the first was given up by Unlock. If its session is lost while it
// waits, it waits again in another one.
func (s *Storage) Lock(ctx context.Context, name string) error {
	return s.acquire(ctx, name)
}

// TryLock takes the lock of that name if it is free now. It is not while others have it,
// nor during the lock-delay after a holder has failed.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	err := s.acquire(ctx, name, client.Try())
	if errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) {
		return false, nil
	}
	return err == nil, err
}

func (s *Storage) acquire(ctx context.Context, name string, options ...client.LockOption) error {
	file := s.lockPath(name)
	options = append(options, client.LockDelay(s.lockDelay), client.Reason(reason(name)))
	return s.do(ctx, func(c *client.Client) error {
		return inDirectory(ctx, c, path.Dir(file), func() error {
			l, err := c.Acquire(ctx, file, options...)
			if err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.held[name] = append(s.held[name], l)
			return nil
		})
	})
}

// reason says to those who look at the lock what it is for.
func reason(name string) string {
	text := fmt.Sprintf("certmagic: %+q", name)
	return text[:min(len(text), api.MaxReason)]
}

// Unlock gives up the lock of that name. Nil means that it was held until now. LockLost or
// SessionExpired says that it had been lost: others may have had it, and what was done
// under it may have been done twice; it is given up all the same. NotHeld says that this
// Storage has no such lock. If ctx ends before an answer, the error is Uncertain, and the
// lock is released in the background.
//
// If one lock was lost and another of the same name has been acquired since, the first
// Unlock is for the one that was lost, whoever calls it: so the other is given up when the
// work under both has stopped.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	locks := s.held[name]
	if len(locks) > 0 {
		s.held[name] = locks[1:]
	}
	if len(locks) <= 1 {
		delete(s.held, name)
	}
	s.mu.Unlock()
	if len(locks) == 0 {
		return &api.Error{Code: api.NotHeld, Op: "unlock", Path: s.lockPath(name), Message: "this storage does not hold the lock"}
	}
	lost := locks[0].Err() // before the release, which ends it
	if err := locks[0].Release(ctx); err != nil || lost == nil {
		return err
	}
	return lost
}

// RenewLockLease sees that the caller, who has the lock of that name, still has it: if it
// was lost, it acquires it again, as Lock does. CertMagic calls it between two attempts at a
// certificate, and then looks whether another has obtained it. The session keeps the lock,
// so otherwise nothing is done, and the duration has no meaning. If it fails, the lock that
// was lost is given up.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	locks := s.held[name]
	if len(locks) == 0 {
		s.mu.Unlock()
		return &api.Error{Code: api.NotHeld, Op: "renew the lock", Path: s.lockPath(name), Message: "this storage does not hold the lock"}
	}
	newest := locks[len(locks)-1]
	s.mu.Unlock()
	if newest.Err() == nil { // if it is not the caller's, another goroutine has it, who may be the caller of the next call
		return nil
	}
	if err := s.Unlock(ctx, name); errors.Is(err, api.NotHeld) {
		return err
	}
	return s.Lock(ctx, name)
}
