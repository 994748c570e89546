package recipe

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// LockedOptions qualify Locked.
type LockedOptions struct {
	// LockDelay is how long nobody may have the lock of a holder that has failed, after its lease: at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
}

// Locked runs f under the lock of a file, exclusively, and releases it. The file is created if it is absent. It may
// be nested: under the context that f is given, or one made from it, Locked of the same file and client runs its
// function at once, under the same lock, without a call, and with neither its own LockDelay nor its options. So a
// function that needs the lock may be called by one that has it.
//
// It is the context that has the lock, as goroutines have no names: two goroutines that are given it are both under the
// lock, and do not exclude each other. With a context that is not made from it, or with another client, Locked waits
// for the lock as anybody does: for ever, if f waits for that itself.
//
// The context of f ends as that of a lock does (client.Lock.With): when ctx ends, and when the lock may not be relied on
// any more. Locked releases the lock and returns when f has returned, and every function that was nested in it; those
// that still run then, in goroutines of their own, find their context ended. Afterwards Locked under that context is
// NotHeld.
//
// The error is that of f; or why the lock was not had, and f was not called: as of client.Handle.Acquire; or, if f
// returns nil, that the lock was lost before it had (LockLost, SessionExpired), or that it is not known whether it is
// released (Uncertain), which goes on in the background.
//
// Locks of several files can be nested, too, and can deadlock, unless all take them in one order:
// client.DetectDeadlock finds that. AcquireAll takes several at once.
func Locked(ctx context.Context, c *client.Client, path string, o LockedOptions, f func(ctx context.Context) error, options ...client.LockOption) error {
	p, err := api.ParsePath(path)
	if err != nil {
		return err
	}
	key := tenureKey{c: c, name: p.Name()}
	if t, ok := ctx.Value(key).(*tenure); ok {
		return t.nest(ctx, p, f)
	}
	h, err := take(ctx, c, path, client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(o.LockDelay)}, api.Exclusive, false, options...)
	if err != nil {
		return ended(ctx, err, "acquire", path)
	}
	t := &tenure{held: h, path: p, idle: make(chan struct{})}
	released := false
	release := func() error {
		released = true
		t.end()
		//mutant: /* nothing */ //by TestLockedOutlived of ./client/recipe
		<-t.idle
		return h.release(ctx)
	}
	defer func() {
		if !released { // f has panicked
			_ = release()
		}
	}()
	if err = t.run(context.WithValue(ctx, key, t), f); err != nil {
		_ = release() // it is the lesser fault
		return err
	}
	return release()
}

// tenureKey is that of a lock in the contexts that are under it.
type tenureKey struct {
	c    *client.Client
	name api.Name
}

// tenure is a lock while functions run under it.
type tenure struct {
	held *held
	path api.Path // by which it was opened

	mu     sync.Mutex // guards what follows
	nested int        // functions that run besides the first
	over   bool       // the first has returned
	idle   chan struct{}
}

// run runs a function under the lock.
func (t *tenure) run(ctx context.Context, f func(ctx context.Context) error) error {
	within, stop := t.held.lock.With(ctx)
	defer stop()
	if within.Err() != nil {
		return ended(ctx, context.Cause(within), "acquire", t.path.String())
	}
	return f(within)
}

// nest runs a function under a lock that its context has.
func (t *tenure) nest(ctx context.Context, p api.Path, f func(ctx context.Context) error) error {
	t.mu.Lock()
	//mutant: over := false //by TestLockedOutlived of ./client/recipe
	over := t.over
	if !over {
		t.nested++
	}
	t.mu.Unlock()
	if over {
		return &api.Error{Code: api.NotHeld, Op: "acquire", Path: p.String(), Err: client.LockReleased,
			Message: "the context is of a lock that was released; it is used after the function that had it"}
	}
	defer t.leave()
	//mutant: if false { //by TestLocked of ./client/recipe
	if p != t.path { // another name of the cell, or another cell
		h, err := t.held.c.Open(ctx, p.String(), client.OpenOptions{Write: true})
		if err != nil {
			return ended(ctx, err, "acquire", p.String())
		}
		leave(ctx, h)
	}
	if err := t.run(ctx, f); err != nil {
		return err
	}
	//mutant: return nil //by TestLockedLost of ./client/recipe
	return t.held.lock.Err()
}

// leave takes note that a nested function has returned.
func (t *tenure) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nested--; t.nested == 0 && t.over {
		close(t.idle)
	}
}

// end takes note that the first function has returned.
func (t *tenure) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.nested == 0 {
		close(t.idle)
	}
}
