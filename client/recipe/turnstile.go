package recipe

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// turnstile lets one caller through at a time, in order of arrival: it is the lock of a file, with the cell's
// queue. The caller may then do what would be dear for all at once. It guards nothing, so it needs no
// lock-delay: if the lock was broken or a session has ended, two may do it. A caller whose lock was broken
// releases it at once, as the cell extends no lease until then, and goes on.
type turnstile struct {
	c      *client.Client
	dir    string
	file   client.OpenOptions // options to open and create it
	places chan struct{}      // one for each request in the cell
}

const (
	turnstileName = "turnstile"
	// mostQueued limits a process's requests in the cell's queue; the others wait in the process. Each waiter
	// takes one of its session's api.MaxOutstanding requests; if waiters took all, holders could not release.
	mostQueued = 32
)

func newTurnstile(c *client.Client, dir string, contents []byte) *turnstile {
	return &turnstile{c: c, dir: dir, places: make(chan struct{}, mostQueued),
		file: client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: contents}}
}

func (t *turnstile) open(ctx context.Context) (*client.Handle, error) {
	return openIn(ctx, t.c, t.dir, turnstileName, t.file)
}

// enter waits for its turn. It calls check before; an error ends the wait. The caller must call leave.
func (t *turnstile) enter(ctx context.Context, reason string, check func(h *client.Handle) error) (*client.Handle, error) {
	h, _, err := t.enterTurn(ctx, reason, check)
	return h, err
}

// enterTurn is enter for callers that must know when the turn is lost: then the context ends, soon, and
// another may have been let through.
func (t *turnstile) enterTurn(ctx context.Context, reason string, check func(h *client.Handle) error) (*client.Handle, context.Context, error) {
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ended(ctx, ctx.Err(), "acquire", t.dir+"/"+turnstileName)
	case <-t.c.Done():
		return nil, nil, t.c.Err()
	}
	h, turn, err := t.pass(ctx, reason, check)
	//mutant: for false { //by TestTakenInTheMomentOfTheGrant of ./client/recipe
	for err != nil && passing(err) {
		h, turn, err = t.pass(ctx, reason, check)
	}
	if err != nil {
		<-t.places
		return nil, nil, err
	}
	return h, turn, nil
}

func (t *turnstile) pass(ctx context.Context, reason string, check func(h *client.Handle) error) (*client.Handle, context.Context, error) {
	h, err := t.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err = check(h); err == nil {
		var l *client.Lock
		if l, err = h.Acquire(ctx, api.Exclusive, client.Reason(reason)); err == nil {
			// After leave it does nothing; before, it ends when the cell has answered or the session has
			// ended.
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(ctx)) })
			return h, l.Context(), nil
		}
	}
	leave(ctx, h)
	return nil, nil, err
}

func (t *turnstile) leave(ctx context.Context, h *client.Handle) {
	leave(ctx, h)
	<-t.places
}
