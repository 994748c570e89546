package recipe

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// turnstile lets one through at a time, in the order in which they came to it: it is the lock of a
// file, whose queue is the cell's. Whoever was let through may do what would be dear if all did it at
// once. It guards nothing, so it needs no lock-delay: if it lets two through, because the lock was broken
// or the session of one is over, they do it both. One whose lock was broken lets go of it at once, as the
// cell extends no lease until the owner has, and goes on with what it does.
type turnstile struct {
	c      *client.Client
	dir    string
	file   client.OpenOptions // with what it is opened, and created
	places chan struct{}      // one for each who is at the cell
}

const (
	turnstileName = "turnstile"
	// mostQueued is how many of one process stand in the cell's queue at a time; the others wait in
	// the process. Whoever waits takes one of the api.MaxOutstanding requests of his session, and if they
	// took all, those who have what is waited for could not give it back.
	mostQueued = 32
)

func newTurnstile(c *client.Client, dir string, contents []byte) *turnstile {
	return &turnstile{c: c, dir: dir, places: make(chan struct{}, mostQueued),
		file: client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: contents}}
}

// open opens the file, which is created if it is absent.
func (t *turnstile) open(ctx context.Context) (*client.Handle, error) {
	return openIn(ctx, t.c, t.dir, turnstileName, t.file)
}

// enter waits for its turn. check is called before it; its error ends the wait. Whoever was let
// through calls leave.
func (t *turnstile) enter(ctx context.Context, reason string, check func(h *client.Handle) error) (*client.Handle, error) {
	h, _, err := t.enterTurn(ctx, reason, check)
	return h, err
}

// enterTurn is enter for one who must know when the turn is lost: then the context ends, soon, and another may have
// been let through.
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

// pass waits for its turn once.
func (t *turnstile) pass(ctx context.Context, reason string, check func(h *client.Handle) error) (*client.Handle, context.Context, error) {
	h, err := t.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err = check(h); err == nil {
		var l *client.Lock
		if l, err = h.Acquire(ctx, api.Exclusive, client.Reason(reason)); err == nil {
			// It does nothing after leave; before, it ends when the cell has answered or the session is over.
			context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(ctx)) })
			return h, l.Context(), nil
		}
	}
	leave(ctx, h)
	return nil, nil, err
}

// leave lets the next one through.
func (t *turnstile) leave(ctx context.Context, h *client.Handle) {
	leave(ctx, h)
	<-t.places
}
