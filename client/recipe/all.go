package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
	"github.com/chubbylock/chubby/sequencer"
)

// Locks are several locks of one cell, held together. Release them, also after one was lost.
type Locks struct {
	ctx    context.Context //nolint:containedctx // it is that of the locks, handed out by Context
	cancel context.CancelCauseFunc
	held   []*hold.Held // by name
	end    hold.Ending
}

// AllOptions qualify AcquireAll.
type AllOptions struct {
	// Shared are the paths of locks taken in shared mode, for files that are only read.
	Shared []string
	// LockDelay blocks the locks of a failed holder after its lease: at most api.MaxLockDelay. Zero is
	// api.DefaultLockDelay; NoLockDelay is for servers that check sequencers.
	LockDelay time.Duration
	// Reason is shown in listings of holders; at most api.MaxReason bytes.
	Reason string
	// Try does not wait. If a lock is held or delayed, AcquireAll releases the others and returns LockHeld or
	// LockDelayed (client.Handle.TryAcquire).
	Try bool
	// Options are those of each request: client.Quiet, which with Try is for a single attempt, or
	// client.DetectDeadlock.
	Options []client.LockOption
	// OnQueued is client.OnQueued, with the path of the lock that is waited for. It must not block.
	OnQueued func(path string, q client.Queued)
}

// AcquireAll takes the locks of several files, creating absent ones: two-phase locking. It is all or nothing:
// if ctx ends, or a lock cannot be had or is lost meanwhile, it releases the others, and the error names the
// lock.
//
// Callers with one AcquireAll each cannot deadlock, as all take locks in the order of their names in the
// cell. Callers that already hold another lock can. AcquireAll holds early locks while it waits for later
// ones.
//
// A path of another cell than the client's is WrongCell. A path given twice, also under another name of the
// cell, is InvalidArgument.
func AcquireAll(ctx context.Context, c *client.Client, paths []string, o AllOptions) (*Locks, error) {
	wants, err := inOrder(paths, o.Shared)
	if err != nil {
		return nil, err
	}
	handles := make([]*client.Handle, 0, len(wants))
	for _, w := range wants { // first, so that a bad path is found before anything is held
		h, err := c.Open(ctx, w.path.String(), client.OpenOptions{Write: true, Create: client.File, LockDelay: hold.Delay(o.LockDelay)})
		if err != nil {
			hold.Leave(ctx, handles...)
			return nil, hold.Ended(ctx, err, "acquire", w.path.String())
		}
		handles = append(handles, h)
	}
	all := &Locks{}
	all.ctx, all.cancel = context.WithCancelCause(sequencer.NewContext(context.WithoutCancel(ctx), nil))
	waiting, stop := context.WithCancelCause(ctx) // ends when a lock is lost
	defer stop(nil)
	defer context.AfterFunc(all.ctx, func() { stop(context.Cause(all.ctx)) })()
	for i, w := range wants {
		l, err := o.acquire(waiting, handles[i], w.mode)
		if err != nil {
			why := context.Cause(all.ctx) // before the release, which ends it too
			hold.Leave(ctx, handles[i:]...)
			_ = all.release(ctx)
			//mutant: why = context.Cause(all.ctx); if ctx.Err() == nil && why != nil { //by TestOneOfSeveralIsDeleted of ./client/recipe
			if ctx.Err() == nil && why != nil {
				return nil, fmt.Errorf("acquire %s: a lock that was acquired before it was lost: %w", w.path, why)
			}
			return nil, err
		}
		all.held = append(all.held, &hold.Held{Client: c, Handle: handles[i], Lock: l})
		context.AfterFunc(l.Context(), func() { all.cancel(context.Cause(l.Context())) })
	}
	if why := all.Err(); why != nil { // one was just lost
		_ = all.Release(ctx)
		return nil, why
	}
	return all, nil
}

func (o AllOptions) acquire(ctx context.Context, h *client.Handle, mode api.LockMode) (*client.Lock, error) {
	options := append([]client.LockOption{client.Reason(o.Reason)}, o.Options...)
	//mutant: if false { //by TestAcquireAllTry of ./client/recipe
	if o.Try {
		return h.TryAcquire(ctx, mode, options...)
	}
	if o.OnQueued != nil {
		options = append(options, client.OnQueued(func(q client.Queued) { o.OnQueued(h.Path(), q) }))
	}
	return h.Acquire(ctx, mode, options...)
}

type want struct {
	path api.Path
	mode api.LockMode
}

// inOrder returns the locks in the order in which all callers take them.
func inOrder(exclusive, shared []string) ([]want, error) {
	bad := func(path, message string) error {
		return &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: path, Message: message}
	}
	var wants []want
	for i, text := range slices.Concat(exclusive, shared) {
		p, err := api.ParsePath(text)
		if err != nil {
			return nil, err
		}
		mode := api.Exclusive
		if i >= len(exclusive) {
			mode = api.Shared
		}
		wants = append(wants, want{p, mode})
	}
	if len(wants) == 0 {
		return nil, bad("", "there is no path; name the locks")
	}
	//mutant: slices.SortFunc(wants, func(a, b want) int { return strings.Compare("", string(b.path.Name())) * 0 }) //by TestAcquireAllNoDeadlock of ./client/recipe
	slices.SortFunc(wants, func(a, b want) int { return strings.Compare(string(a.path.Name()), string(b.path.Name())) })
	for i, w := range wants[1:] {
		if before := wants[i].path; before.Name() == w.path.Name() {
			return nil, bad(w.path.String(), fmt.Sprintf("it is there twice, also as %s; name each lock once", before))
		}
	}
	return wants, nil
}

// Context ends, with the cause, when the context of any lock does (client.Lock.Context).
// sequencer.FromContext finds nothing in it: see Sequencers.
func (l *Locks) Context() context.Context { return l.ctx }

// Done is closed when Context ends.
func (l *Locks) Done() <-chan struct{} { return l.ctx.Done() }

// Err checks the clock, and returns why a lock is unreliable, or nil.
func (l *Locks) Err() error {
	for _, h := range l.held {
		if err := h.Lock.Err(); err != nil {
			return err
		}
	}
	return context.Cause(l.ctx)
}

// Sequencers returns those of the locks, by name. A server checks the one of the lock that protects it.
func (l *Locks) Sequencers() []sequencer.Sequencer {
	var list []sequencer.Sequencer
	for _, h := range l.held {
		list = append(list, h.Lock.Sequencer())
	}
	return list
}

// Locks returns the locks, by name, for their tokens. Only Release releases them.
func (l *Locks) Locks() []*client.Lock {
	var list []*client.Lock
	for _, h := range l.held {
		list = append(list, h.Lock)
	}
	return list
}

// Release ends the context, then releases the locks, the last first. Nil means that all were held until now;
// other errors are client.Lock.Release's. Without an answer before the end of ctx it is
// Uncertain, and goes on in the background; another call waits for it again.
func (l *Locks) Release(ctx context.Context) error {
	l.cancel(&api.Error{Code: api.NotHeld, Op: "hold", Path: l.held[0].Handle.Path(), Err: client.LockReleased, Message: "the locks were released"})
	return l.release(ctx)
}

func (l *Locks) release(ctx context.Context) error {
	if len(l.held) == 0 {
		return nil
	}
	return l.end.Run(ctx, l.held[0].Client, "release", l.held[0].Handle.Path(), func(ctx context.Context) error {
		var faults []error
		for _, h := range slices.Backward(l.held) {
			faults = append(faults, h.Release(ctx))
		}
		return errors.Join(faults...)
	})
}
