package recipes

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/internal/hold"
)

// Barrier holds up those who come to it while it is raised: while a file is there. Nobody is counted;
// who comes while it is lifted passes, and when it is lifted, all who wait do.
//
// It is raised until somebody lifts it; or, with Ephemeral, until the last of those who raised it has
// lifted it or died. Wait watches the directory, not the file, as an open handle would keep an
// ephemeral file: so give a busy barrier a directory of its own.
type Barrier struct {
	c    *client.Client
	path api.Path
	o    BarrierOptions
	err  error // of the path

	mu     sync.Mutex     // guards raised
	raised *client.Handle // that keeps an ephemeral barrier raised; nil when this one does not
}

// BarrierOptions are those of a Barrier.
type BarrierOptions struct {
	// Ephemeral makes Raise hold the barrier by the session: it is lifted if that ends, at the latest a
	// lease after its owner was last heard of.
	Ephemeral bool
}

// NewBarrier returns the barrier of a path, whose directory is there. It asks nobody.
func NewBarrier(c *client.Client, path string, o BarrierOptions) *Barrier {
	p, err := api.ParsePath(path)
	return &Barrier{c: c, path: p, o: o, err: err}
}

// Raise raises the barrier, and has raised it when it returns nil; also if it was raised before. One
// that is ephemeral is raised by each who calls it. A barrier of the other kind is Exists.
func (b *Barrier) Raise(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	b.mu.Lock()
	mine := b.raised
	b.mu.Unlock()
	if mine != nil {
		if _, err := mine.Stat(ctx); !hold.Gone(err) {
			return hold.Ended(ctx, err, "raise", b.path.String())
		}
	}
	for {
		h, err := b.c.Open(ctx, b.path.String(), client.OpenOptions{Read: true, Create: client.File, Ephemeral: b.o.Ephemeral})
		if errors.Is(err, api.Exists) { // the session that held it is over, and it is just being lifted
			if err = b.Wait(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return hold.Ended(ctx, err, "raise", b.path.String())
		}
		stat, err := h.Stat(ctx)
		if err == nil && stat.Ephemeral == b.o.Ephemeral {
			b.keep(ctx, h)
			return nil
		}
		hold.Leave(ctx, h)
		switch {
		case hold.Gone(err):
		case err != nil:
			return hold.Ended(ctx, err, "raise", b.path.String())
		default:
			return &api.Error{Code: api.Exists, Op: "raise", Path: b.path.String(),
				Message: "there is a file of the other kind: one of the barrier's users has set Ephemeral and another has not; set it for all"}
		}
	}
}

// keep keeps the handle of an ephemeral barrier; a permanent one needs none.
func (b *Barrier) keep(ctx context.Context, h *client.Handle) {
	if b.o.Ephemeral {
		b.mu.Lock()
		b.raised, h = h, b.raised
		b.mu.Unlock()
	}
	if h != nil {
		hold.Leave(ctx, h)
	}
}

// Lift lets everybody through: the file is deleted, whoever raised the barrier. It is no fault if it
// is not raised. To lift it again after an error lifts what was raised meanwhile too.
func (b *Barrier) Lift(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	ctx, cancel := b.c.CleanupContext(ctx)
	defer cancel()
	b.mu.Lock()
	mine := b.raised
	b.raised = nil
	b.mu.Unlock()
	if mine != nil {
		defer hold.Leave(ctx, mine)
	}
	h, err := b.c.Open(ctx, b.path.String(), client.OpenOptions{Write: true})
	if err == nil {
		err = h.Delete(ctx)
		hold.Leave(ctx, h)
	}
	switch {
	case hold.Gone(err):
		return nil
	case errors.Is(err, api.Exists): // it is just being lifted with the session that held it
		return b.Wait(ctx)
	}
	return hold.Ended(ctx, err, "lift", b.path.String())
}

// Wait returns nil if the barrier is not raised, or else once it has been lifted, also if it was raised again at once. If ctx ends
// before, it is DeadlineExceeded or Cancelled. A directory that is not there is NotFound: nobody is let through by a slip of the pen.
func (b *Barrier) Wait(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	var first *api.Stat // of the file when Wait began
	for change, err := range recipe.Watch(ctx, b.c, b.path.Parent().String()) {
		if err != nil {
			return hold.Ended(ctx, err, "wait at the barrier", b.path.String())
		}
		if change.Kind == recipe.Deleted || change.Stat.Kind != api.Directory {
			break
		}
		at := slices.IndexFunc(change.Children, func(one api.Stat) bool { return one.Path.Base() == b.path.Base() })
		if at < 0 || first != nil && change.Children[at].Instance != first.Instance {
			return nil // or it was lifted, and is raised again
		}
		first = &change.Children[at]
	}
	return &api.Error{Code: api.NotFound, Op: "wait at the barrier", Path: b.path.String(), Message: "there is no directory for it; make it first"}
}
