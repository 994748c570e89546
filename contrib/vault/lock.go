package chubbyvault

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/hashicorp/vault/sdk/physical"
)

// Lock is a lock among the nodes of one Vault, as physical.Lock describes it. Its methods may be called
// from several goroutines.
type Lock struct {
	b     *Backend
	path  string
	value string

	mu    sync.Mutex // guards what follows; no call is made while it is held
	taken bool       // from the beginning of Lock until Unlock, or until Lock has failed
	held  *client.Lock
	last  *client.Lock // the one that Lock has acquired last, also after Unlock
}

var _ physical.Lock = (*Lock)(nil)

const (
	askTime    = 10 * time.Second // of Value, which has no context
	unlockTime = 5 * time.Second  // of Unlock, which has none either

	leaderLooks = 3 // of Value, if the lock passes on meanwhile
)

// HAEnabled reports whether several nodes may share the backend (see Config.DisableHA).
func (b *Backend) HAEnabled() bool { return !b.cfg.DisableHA }

// LockWith returns the lock of a key, with the value that others see while it is held: at most
// api.MaxContents bytes. Keys of locks and of entries have nothing to do with each other. It makes no call;
// a key whose path is too long is InvalidArgument, and a value that is too long TooLarge.
func (b *Backend) LockWith(key, value string) (physical.Lock, error) {
	file := fileOf(key)
	if err := room("lock", b.locks(), file); err != nil {
		return nil, err
	}
	if len(value) > api.MaxContents {
		return nil, &api.Error{Code: api.TooLarge, Op: "lock", Path: b.locks() + "/" + file,
			Message: fmt.Sprintf("%s: it has %d bytes; at most %d are allowed", physical.ErrValueTooLarge, len(value), api.MaxContents)}
	}
	return &Lock{b: b, path: b.locks() + "/" + file, value: value}, nil
}

// Lock waits for the lock, in a queue with others, until stopCh is closed: then it returns nil and nil.
// It waits on when its session is lost, and while the cell does not answer.
//
// The channel that it returns is closed a client.Margin before the first moment at which another could
// hold the lock, by the local clock; at once when the lock was taken away; and by Unlock. A process that
// was stopped may see it late: that nothing is written then is what RegisterActiveNodeLock is for.
//
// A lock that was not given back by Unlock, although it was lost, is InvalidArgument.
func (l *Lock) Lock(stopCh <-chan struct{}) (<-chan struct{}, error) {
	l.mu.Lock()
	taken := l.taken
	l.taken = true
	l.mu.Unlock()
	if taken {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "lock", Path: l.path, Message: "it was locked before; call Unlock first, also when it was lost"}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-stopCh:
			cancel()
		case <-ctx.Done():
		}
	})
	held, err := l.wait(ctx)
	stopped := ctx.Err() != nil
	cancel()
	watch.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.taken = false
		if stopped {
			return nil, nil
		}
		return nil, err
	}
	l.held, l.last = held, held
	return held.Context().Done(), nil
}

// wait acquires the lock, in one session after another.
func (l *Lock) wait(ctx context.Context) (*client.Lock, error) {
	for {
		held, err := l.acquire(ctx)
		if err == nil || ctx.Err() != nil || without(err, api.SessionExpired, api.LockLost, api.BadSequencer, api.HandleClosed) != nil {
			return held, err
		}
	}
}

// acquire acquires the lock, and writes the value.
func (l *Lock) acquire(ctx context.Context) (held *client.Lock, err error) {
	err = l.b.keeper.Do(ctx, func(c *client.Client) error {
		options := []client.LockOption{client.LockDelay(l.b.cfg.LockDelay), client.Reason("a node of Vault")}
		held, err = c.Acquire(ctx, l.path, options...)
		if errors.Is(err, api.NotFound) {
			if err := c.MkdirAll(ctx, path.Dir(l.path)); err != nil {
				return err
			}
			held, err = c.Acquire(ctx, l.path, options...)
		}
		if err != nil {
			return err
		}
		if _, err = c.Put(ctx, l.path, []byte(l.value), client.IfSequencer(held.Sequencer())); err != nil {
			_ = held.Release(ctx) // in the background, if there is no answer
		}
		return err
	})
	return held, err
}

// Unlock gives the lock back; the channel of Lock is closed before. By calling it, the caller says that
// the work under the lock has stopped, also if the lock was lost: others may wait for that. Nil means that
// the lock is not held any more. If the cell does not answer within five seconds the error is Uncertain,
// and the lock is given back in the background. Unlock of a lock that is not held does nothing.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	held := l.held
	if held != nil {
		l.held, l.taken = nil, false
	}
	l.mu.Unlock()
	if held == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), unlockTime)
	defer cancel()
	return without(held.Release(ctx), api.LockLost, api.SessionExpired)
}

// Value returns whether some node holds the lock, and that node's value. They are of one moment: the value
// is never that of a holder before. A node that has the lock and has not written its value yet, so that
// its Lock has not returned, does not hold it. The error is Unavailable, or DeadlineExceeded, if the cell
// does not answer within ten seconds.
func (l *Lock) Value() (bool, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	var now recipe.Reign
	err := l.b.keeper.Do(ctx, func(c *client.Client) error {
		for range leaderLooks {
			var err error
			if now, err = recipe.Leader(ctx, c, l.path); err != nil || now.Vacant || now.Sure {
				return err
			}
			// The lock passed on between the two looks of Leader, or its holder is about to write.
		}
		return nil
	})
	if err != nil {
		return false, "", fmt.Errorf("find who holds a lock of Vault: %w", err)
	}
	return now.Sure, string(now.Value), nil
}
