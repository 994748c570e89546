package client

import (
	"context"
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
)

// maxReopen limits how often a call by path opens a node again after a deletion.
const maxReopen = 10

// Acquire opens a file, creates an absent one in an existing directory, waits for its lock as Handle.Acquire
// does, and returns it. The lock is exclusive, with the lock-delay api.DefaultLockDelay; the options Shared
// and LockDelay change that; with Try it does not wait. If the file is deleted meanwhile, Acquire creates it
// again, at most ten times.
//
// Release of the lock closes the handle too; the file stays. Each call has its own handle: a program that
// calls Acquire again while it holds the lock waits for itself. The errors are those of Open and of
// Handle.Acquire, except Uncertain: after an error no lock is held, and no handle is open. The file may have
// been created.
func (c *Client) Acquire(ctx context.Context, path string, options ...LockOption) (*Lock, error) {
	o := lockOptionsOf(options)
	opening, mode := OpenOptions{Write: true, Create: File, LockDelay: api.DefaultLockDelay}, api.Exclusive
	if o.lockDelay != nil {
		opening.LockDelay = *o.lockDelay
	}
	if o.shared {
		mode = api.Shared
	}
	options = append(slices.Clone(options), func(o *lockOptions) { o.ownsHandle = true })
	for opened := 1; ; opened++ {
		h, err := c.Open(ctx, path, opening)
		if err != nil {
			//mutant: return nil, err
			return nil, notOpened(ctx, err)
		}
		acquire := h.Acquire
		if o.try {
			acquire = h.TryAcquire
		}
		l, err := acquire(ctx, mode, options...)
		if err == nil {
			return l, nil
		}
		_ = h.Close(ctx) // without an answer, it is closed in the background
		if !errors.Is(err, api.HandleClosed) || opened == maxReopen {
			return nil, err
		}
	}
}

// notOpened returns the error of Acquire after an error of Open. It replaces Uncertain (the file may exist),
// which callers would take for the Uncertain of a release.
func notOpened(ctx context.Context, err error) error {
	var e *api.Error
	//mutant: if ctx.Err() == nil || !errors.As(err, &e) || e.Code != api.Uncertain {
	if !errors.As(err, &e) || e.Code != api.Uncertain {
		return err
	}
	own := *e
	own.Code = api.Unavailable // an answer was lost, and another refused, perhaps not for good
	if ctx.Err() != nil {
		own.Code = api.ContextCode(contextError(ctx))
	}
	own.Message = "the lock is not held; whether its file was created is not known: " + e.Message
	return &own
}

// Do runs f under the lock of a file: it acquires the lock as Acquire does, calls f, and releases the lock as
// Lock.Release does, also if f panics or ctx was cancelled. The context of f is that of Lock.With: it ends,
// with the cause, when ctx does, or when the lock becomes unreliable. When f returns, its work must have
// stopped, in other goroutines too: another may hold the lock then.
//
// Nil means that f has returned nil, and that the lock was held until then, or until f itself released it. If
// the lock was lost before, the error is LockLost or SessionExpired, joined with f's error, if any; errors.Is
// finds both, and api.CodeOf the code of the loss. Otherwise it is f's error, or the release's, or both,
// joined. A release error, such as Uncertain, only says that f was called, and that others may get the lock
// later. If the lock was not acquired, f was not called, and the error is Acquire's.
func (c *Client) Do(ctx context.Context, path string, f func(ctx context.Context, l *Lock) error, options ...LockOption) (err error) {
	atLeast := lockOptionsOf(options).atLeast
	if atLeast > 0 { // a negative one is rejected
		options = append(slices.Clone(options), AtLeast(0))
	}
	l, err := c.Acquire(ctx, path, options...)
	if err != nil {
		return err
	}
	acquired := c.cfg.Clock()
	defer func() { // no recover: a panic goes on, and so does runtime.Goexit
		lost := l.Err() // before the release, which ends the context
		//mutant: if why := recover(); why != nil { panic(why) }; released := l.Release(ctx)
		released := l.Release(ctx)
		err = doError(err, lost, released)
	}()
	within, end := l.With(ctx)
	defer end()
	err = f(within, l)
	if left := atLeast - c.cfg.Clock().Sub(acquired); left > 0 {
		sleep(within, left)
	}
	return err
}

// doError is the error of Do, from its function's, the reason of the lock's loss, and the release's.
func doError(err, lost, released error) error {
	if lost == nil && (errors.Is(released, api.LockLost) || errors.Is(released, api.SessionExpired)) {
		lost = released // no earlier event said so
	}
	switch {
	case errors.Is(lost, LockReleased): // by the function, which knows the result
		return err
	case lost != nil && errors.Is(err, lost) && api.CodeOf(err) == api.CodeOf(lost):
		return err
	case lost != nil && err != nil:
		return errors.Join(lost, err)
	case lost != nil:
		return lost
	case err != nil && released != nil:
		return errors.Join(err, released)
	case err != nil:
		return err
	}
	return released
}
