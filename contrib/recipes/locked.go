package recipes

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// LockedOptions qualify Locked.
type LockedOptions struct {
	// LockDelay blocks the lock of a failed holder after its lease: at most api.MaxLockDelay. Zero is
	// api.DefaultLockDelay; recipe.NoLockDelay is for servers that check sequencers.
	LockDelay time.Duration
}

// Locked runs f under the exclusive lock of a file, which it creates if absent, and releases it. It nests:
// under the context of f, or one made from it, Locked of the same file and client runs its function at once,
// under the same lock, without a call, and ignores its own options. So a function that needs the lock may be
// called under it.
//
// The context has the lock, as goroutines have no names: two goroutines with it do not exclude each other.
// With another context or client, Locked waits for the lock like any caller: permanently, if f waits for
// that.
//
// The context of f ends as a lock's does (client.Lock.With): when ctx ends, and when the lock becomes
// unreliable. Locked releases the lock and returns when f and every nested function have returned; those that
// outlive f, in their own goroutines, find their context ended. Then Locked under that context is NotHeld.
//
// The error is that of f. If the lock was not had, f was not called and the error is client.Handle.Acquire's.
// If f returns nil, the error can say that the lock was lost before (LockLost, SessionExpired), or that its
// release, which goes on in the background, is Uncertain.
//
// Locks of several files can nest too, and can deadlock unless all callers take them in one order:
// client.DetectDeadlock finds that. recipe.AcquireAll takes several at once.
func Locked(ctx context.Context, c *client.Client, path string, o LockedOptions, f func(ctx context.Context) error, options ...client.LockOption) error {
	p, err := api.ParsePath(path)
	if err != nil {
		return err
	}
	key := tenureKey{c: c, name: p.Name()}
	if t, ok := ctx.Value(key).(*tenure); ok {
		return t.nest(ctx, p, f)
	}
	opening := client.OpenOptions{Write: true, Create: client.File, LockDelay: hold.Delay(o.LockDelay)}
	held, err := hold.Take(ctx, c, path, opening, api.Exclusive, false, options...)
	if err != nil {
		return hold.Ended(ctx, err, "acquire", path)
	}
	t := &tenure{held: held, path: p, idle: make(chan struct{})}
	released := false
	release := func() error {
		released = true
		t.end()
		//mutant: /* nothing */
		<-t.idle
		return t.held.Release(ctx)
	}
	defer func() {
		if !released { // f has panicked
			_ = release()
		}
	}()
	if err = t.run(context.WithValue(ctx, key, t), f); err != nil {
		_ = release() // the lesser fault
		return err
	}
	return release()
}

type tenureKey struct {
	c    *client.Client
	name api.Name
}

// tenure is a lock while functions run under it.
type tenure struct {
	held *hold.Held
	path api.Path // as opened

	mu     sync.Mutex // guards what follows
	nested int        // running functions besides the first
	over   bool       // the first has returned
	idle   chan struct{}
}

func (t *tenure) run(ctx context.Context, f func(ctx context.Context) error) error {
	within, stop := t.held.Lock.With(ctx)
	defer stop()
	if within.Err() != nil {
		return hold.Ended(ctx, context.Cause(within), "acquire", t.path.String())
	}
	return f(within)
}

// nest runs a function under its context's lock.
func (t *tenure) nest(ctx context.Context, p api.Path, f func(ctx context.Context) error) error {
	t.mu.Lock()
	//mutant: over := false
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
	//mutant: if false {
	if p != t.path { // another name of the cell, or another cell
		h, err := t.held.Client.Open(ctx, p.String(), client.OpenOptions{Write: true})
		if err != nil {
			return hold.Ended(ctx, err, "acquire", p.String())
		}
		hold.Leave(ctx, h)
	}
	if err := t.run(ctx, f); err != nil {
		return err
	}
	//mutant: return nil
	return t.held.Lock.Err()
}

func (t *tenure) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nested--; t.nested == 0 && t.over {
		close(t.idle)
	}
}

func (t *tenure) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.nested == 0 {
		close(t.idle)
	}
}
