package chubbykv

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/kvtools/valkeyrie/store"
)

// Lock is the lock of a key: a store.Locker. Locks of one key exclude each other, those of one Store too. Its
// methods may be called from several goroutines.
type Lock struct {
	s    *Store
	e    entry
	path string
	o    store.LockOptions

	mu    sync.Mutex // guards what follows; no call is made while it is held
	taken bool       // from the beginning of Lock until Unlock, or until Lock has failed
	held  *holding   // nil unless Lock has returned
}

// holding is a lock that was acquired.
type holding struct {
	lock  *client.Lock
	end   context.CancelFunc // closes the channel of Lock
	value api.Generation     // of the key, as it was written with the lock; 0 if it was not
}

var _ store.Locker = (*Lock)(nil)

// NewLock returns the lock of a key, which is a *Lock. It makes no call. Of the options,
//
//   - Value is written to the key when the lock is acquired, on the condition that it is still held; nil is
//     not.
//   - DeleteOnUnlock has the key go with the lock: Unlock deletes it, unless others have written it since, and
//     the cell does when the session has ended.
//   - TTL has no effect without RenewLock: the session keeps the lock, and its lease (Config.Client.Lease) says
//     when that of a process that has failed is free.
//   - RenewLock, when it is closed or sent to, has the lock released after TTL (api.DefaultLease if that is 0),
//     whether the work under it has stopped or not; the channel of Lock is closed a client.Margin before.
func (s *Store) NewLock(_ context.Context, key string, opts *store.LockOptions) (store.Locker, error) {
	e, err := s.valueOf("lock", key)
	if err != nil {
		return nil, err
	}
	l := &Lock{s: s, e: e, path: s.locks() + "/" + e.value}
	if opts != nil {
		l.o = *opts
	}
	if l.o.TTL <= 0 {
		l.o.TTL = api.DefaultLease
	}
	if len(l.o.Value) > MaxValue {
		return nil, &api.Error{Code: api.TooLarge, Op: "lock", Path: l.path, Message: fmt.Sprintf("the value has %d bytes; at most %d are allowed", len(l.o.Value), MaxValue)}
	}
	return l, nil
}

// Lock waits for the lock, in a queue with others, until ctx ends. It waits on, at the end of the queue, when its
// session is lost. The channel that it returns is closed a client.Margin before the first moment at which
// another could hold the lock, by the local clock; at once when the lock was taken away; and by Unlock. A
// process that is stopped may see it late: what others write for it can be fenced by Sequencer.
//
// A lock that is held, or was lost and not given back by Unlock, is store.ErrCannotLock.
func (l *Lock) Lock(ctx context.Context) (<-chan struct{}, error) {
	l.mu.Lock()
	taken := l.taken
	l.taken = true
	l.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("%w: that of key %q was locked before; call Unlock first, also when it was lost", store.ErrCannotLock, l.e.key)
	}
	held, err := l.wait(ctx)
	if err != nil {
		l.mu.Lock()
		l.taken = false
		l.mu.Unlock()
		return nil, fmt.Errorf("lock key %q: %w", l.e.key, err)
	}
	lost, end := context.WithCancel(held.lock.Context())
	held.end = end
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
	if l.o.RenewLock != nil {
		if err := l.s.start(func(life context.Context) { l.renew(life, held) }); err != nil { // the Store was closed, and the lock is lost
			end()
		}
	}
	return lost.Done(), nil
}

// wait acquires the lock, in one session after another.
func (l *Lock) wait(ctx context.Context) (*holding, error) {
	for {
		held, err := l.acquire(ctx)
		again := false
		for _, code := range []api.Code{api.SessionExpired, api.LockLost, api.BadSequencer, api.HandleClosed} {
			again = again || errors.Is(err, code)
		}
		if !again || ctx.Err() != nil {
			return held, err
		}
	}
}

// acquire acquires the lock, and writes the value.
func (l *Lock) acquire(ctx context.Context) (*holding, error) {
	var held *holding
	err := l.s.keeper.Do(ctx, func(c *client.Client) error {
		options := []client.LockOption{client.LockDelay(l.s.lockDelay), client.Reason("a lock of valkeyrie")}
		lock, err := c.Acquire(ctx, l.path, options...)
		for round := 1; errors.Is(err, api.NotFound) && round < maxRounds; round++ {
			if err := c.MkdirAll(ctx, path.Dir(l.path)); err != nil {
				return err
			}
			lock, err = c.Acquire(ctx, l.path, options...)
		}
		if err != nil {
			return err
		}
		held = &holding{lock: lock}
		if l.o.Value == nil {
			return nil
		}
		fence := lock.Sequencer()
		stat, err := l.s.putOnce(ctx, c, l.e, write{value: l.o.Value, leased: l.o.DeleteOnUnlock, fence: &fence})
		if err != nil {
			_ = lock.Release(ctx) // in the background, if there is no answer
			return err
		}
		held.value = stat.Content
		return nil
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// renew waits until the lock is not to be renewed any more, and releases it after its TTL.
func (l *Lock) renew(life context.Context, held *holding) {
	select {
	case <-l.o.RenewLock:
	case <-held.lock.Context().Done():
		return
	case <-life.Done():
		return
	}
	margin := client.Margin(l.o.TTL, 0)
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{
		{l.o.TTL - margin, held.end},
		{margin, func() {
			ctx, cancel := context.WithTimeout(life, client.CleanupTime)
			defer cancel()
			_ = held.lock.Release(ctx) // in the background, if there is no answer
		}},
	} {
		timer := time.NewTimer(step.after)
		select {
		case <-timer.C:
			step.do()
		case <-held.lock.Context().Done():
		case <-life.Done():
		}
		timer.Stop()
	}
}

// Unlock gives the lock back; the channel of Lock is closed before. By calling it, the caller says that the
// work under the lock has stopped. Nil means that the lock was held until now. An error with the code LockLost
// or SessionExpired says that it had been lost: others may have had it; it is given back all the same. If ctx
// ends before an answer, the error is Uncertain, and the lock is given back in the background. Unlock of a lock
// that is not held is store.ErrCannotLock.
func (l *Lock) Unlock(ctx context.Context) error {
	l.mu.Lock()
	held := l.held
	if held != nil {
		l.held, l.taken = nil, false
	}
	l.mu.Unlock()
	if held == nil {
		return fmt.Errorf("%w: that of key %q is not held", store.ErrCannotLock, l.e.key)
	}
	lost := held.lock.Err() // before the release, which ends it
	held.end()
	if lost == nil && l.o.DeleteOnUnlock && held.value != 0 {
		l.clear(ctx, held)
	}
	if err := held.lock.Release(ctx); err != nil || lost == nil {
		return err
	}
	return lost
}

// clear deletes the key, unless others have written it since. If it fails, the key goes with the session.
func (l *Lock) clear(ctx context.Context, held *holding) {
	_ = l.s.keeper.Do(ctx, func(c *client.Client) error {
		file := l.s.file(l.e)
		_, err := c.Txn().If(file, client.IfSequencer(held.lock.Sequencer())).Delete(file, client.IfGeneration(held.value)).Commit(ctx)
		if err == nil {
			l.s.prune(ctx, c, path.Dir(file))
		}
		return err
	})
}

// Sequencer returns the proof that this lock is held, which servers that the work uses can check (package
// sequencer); false if it is not held, or was lost.
func (l *Lock) Sequencer() (sequencer.Sequencer, bool) {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held == nil || held.lock.Err() != nil {
		return sequencer.Sequencer{}, false
	}
	return held.lock.Sequencer(), true
}
