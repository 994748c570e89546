package hold

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// TurnstileName is the name of a Turnstile's file in its directory.
const TurnstileName = "turnstile"

// mostQueued limits a process's requests in the cell's queue; the others wait in the process. Each waiter
// takes one of its session's api.MaxOutstanding requests; if waiters took all, holders could not release.
const mostQueued = 32

// Turnstile lets one at a time through, in the order in which they came: it is the lock of a file, with the
// cell's queue. The lock guards nothing, so it needs no lock-delay: if it was broken or a session has ended,
// two may be let through. A caller whose lock was broken releases it at once, as the cell extends no lease
// until then, and goes on.
type Turnstile struct {
	c        *client.Client
	dir      string
	contents []byte
	places   chan struct{} // one for each request in the cell's queue
}

// NewTurnstile returns that of a recipe's directory, without a call. An absent file is made with the contents.
func NewTurnstile(c *client.Client, dir string, contents []byte) *Turnstile {
	return &Turnstile{c: c, dir: dir, contents: contents, places: make(chan struct{}, mostQueued)}
}

// Open opens the file, which it makes if it is absent, as the directory.
func (t *Turnstile) Open(ctx context.Context) (*client.Handle, error) {
	return OpenIn(ctx, t.c, t.dir, TurnstileName, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: t.contents})
}

// Enter waits for its turn. It calls check, if any, before; an error ends the wait. The caller must call
// Leave.
func (t *Turnstile) Enter(ctx context.Context, reason string, check func(context.Context, *client.Handle) error) (*client.Handle, error) {
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.c.Done():
		return nil, t.c.Err()
	}
	h, err := t.pass(ctx, reason, check)
	//mutant: for false { //by TestTakenInTheMomentOfTheGrant of ./client/recipe
	for err != nil && Passing(err) {
		h, err = t.pass(ctx, reason, check)
	}
	if err != nil {
		<-t.places
	}
	return h, err
}

func (t *Turnstile) pass(ctx context.Context, reason string, check func(context.Context, *client.Handle) error) (*client.Handle, error) {
	h, err := t.Open(ctx)
	if err != nil {
		return nil, err
	}
	if check != nil {
		err = check(ctx, h)
	}
	if err == nil {
		var l *client.Lock
		if l, err = h.Acquire(ctx, api.Exclusive, client.Reason(reason)); err == nil {
			// After Leave it does nothing; before, it ends when the cell has answered or the session has
			// ended.
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(ctx)) })
			return h, nil
		}
	}
	Leave(ctx, h)
	return nil, err
}

// Leave lets the next one through.
func (t *Turnstile) Leave(ctx context.Context, h *client.Handle) {
	Leave(ctx, h)
	<-t.places
}
