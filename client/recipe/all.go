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
	"github.com/chubbylock/chubby/sequencer"
)

// Locks are several locks of one cell, held together. Release them, also when one was lost.
type Locks struct {
	ctx    context.Context //nolint:containedctx // it is that of the locks, handed out by Context
	cancel context.CancelCauseFunc
	held   []*held // in the order of their names
	end    ending
}

// AllOptions qualify AcquireAll.
type AllOptions struct {
	// Shared are paths of locks that are taken in shared mode, besides those that are taken in exclusive
	// mode: of what is only read.
	Shared []string
	// LockDelay is how long nobody may have the locks of a holder that has failed, after its lease: at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
	// Reason is shown to those who look who holds the locks; at most api.MaxReason bytes.
	Reason string
	// Try does not wait: if a lock is held or delayed, those that it has are released, and the error is
	// LockHeld or LockDelayed, as of client.Handle.TryAcquire.
	Try bool
	// Quiet has the request ask no holder to let go (client.Quiet): with Try, if it is not repeated.
	Quiet bool
	// Owner has the request fail with Deadlock where waiting would never end (client.DetectDeadlock), among
	// all who name an owner. Empty is none.
	Owner string
	// OnQueued is called as client.OnQueued says, with the path of the lock that is waited for. It must not
	// block.
	OnQueued func(path string, q client.Queued)
}

// AcquireAll takes the locks of several files, which are created if they are absent, and returns when
// it has all of them: two-phase locking over the locks of the cell. It is all or nothing: if ctx ends
// before, or one cannot be had, or one is lost meanwhile, those it has are released, and the error says
// which it was.
//
// There is no deadlock among those who take locks with one AcquireAll each, since all take them in the
// order of their names in the cell, and who waits for one holds none that comes after it. There may be
// one with those who hold another lock while they call it. Locks are held while later ones are waited
// for; whoever needs two that are rarely free holds up others for long.
//
// The paths are all in the cell of the client; another's is WrongCell. One that is there twice, also
// by another name of the cell, is InvalidArgument.
func AcquireAll(ctx context.Context, c *client.Client, paths []string, o AllOptions) (*Locks, error) {
	wants, err := inOrder(paths, o.Shared)
	if err != nil {
		return nil, err
	}
	handles := make([]*client.Handle, 0, len(wants))
	for _, w := range wants { // first, so that nothing is held while a path turns out to be bad
		h, err := c.Open(ctx, w.path.String(), client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(o.LockDelay)})
		if err != nil {
			leave(ctx, handles...)
			return nil, ended(ctx, err, "acquire", w.path.String())
		}
		handles = append(handles, h)
	}
	all := &Locks{}
	waiting := ctx // ends when a lock that it has is lost
	for i, w := range wants {
		l, err := o.acquire(waiting, handles[i], w.mode)
		if err != nil {
			why := context.Cause(waiting) // before the release, which ends the contexts of the others too
			leave(ctx, handles[i:]...)
			_ = all.release(ctx)
			//mutant: why = context.Cause(waiting); if ctx.Err() == nil && why != nil { //by TestOneOfSeveralIsDeleted of ./client/recipe
			if ctx.Err() == nil && why != nil {
				return nil, fmt.Errorf("acquire %s: a lock that was acquired before it was lost: %w", w.path, why)
			}
			return nil, err
		}
		all.held = append(all.held, &held{c: c, handle: handles[i], lock: l})
		var stop context.CancelFunc
		waiting, stop = l.With(waiting)
		defer stop()
	}
	all.begin()
	if all.ctx.Err() != nil { // one was lost in the last moment
		why := context.Cause(all.ctx)
		_ = all.Release(ctx)
		return nil, why
	}
	return all, nil
}

// acquire takes one of the locks.
func (o AllOptions) acquire(ctx context.Context, h *client.Handle, mode api.LockMode) (*client.Lock, error) {
	options := []client.LockOption{client.Reason(o.Reason)}
	if o.Owner != "" {
		options = append(options, client.DetectDeadlock(o.Owner))
	}
	if o.Quiet {
		options = append(options, client.Quiet())
	}
	//mutant: if false { //by TestAcquireAllTry of ./client/recipe
	if o.Try {
		return h.TryAcquire(ctx, mode, options...)
	}
	if o.OnQueued != nil {
		options = append(options, client.OnQueued(func(q client.Queued) { o.OnQueued(h.Path(), q) }))
	}
	return h.Acquire(ctx, mode, options...)
}

// begin makes the context. It has no sequencer, as there are several.
func (l *Locks) begin() {
	l.ctx, l.cancel = context.WithCancelCause(sequencer.NewContext(l.held[0].lock.Context(), nil))
	for _, h := range l.held[1:] {
		lock := h.lock.Context()
		context.AfterFunc(lock, func() { l.cancel(context.Cause(lock)) })
	}
}

// want is one lock that is to be taken.
type want struct {
	path api.Path
	mode api.LockMode
}

// inOrder returns the locks in the order in which everybody takes them.
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

// Context is that of the work under the locks. It ends, with the cause, when that of any of the locks
// does (client.Lock.Context). sequencer.FromContext finds none in it: see Sequencers.
func (l *Locks) Context() context.Context { return l.ctx }

// Done is closed when Context ends.
func (l *Locks) Done() <-chan struct{} { return l.ctx.Done() }

// Err checks the clock, and returns why the locks may not be relied on any more, nil while all of them may.
func (l *Locks) Err() error {
	for _, h := range l.held {
		if err := h.lock.Err(); err != nil {
			return err
		}
	}
	return context.Cause(l.ctx)
}

// Sequencers returns those of the locks, in the order of their names in the cell: a server that the
// work goes to checks that of the lock that protects it.
func (l *Locks) Sequencers() []sequencer.Sequencer {
	var list []sequencer.Sequencer
	for _, h := range l.held {
		list = append(list, h.lock.Sequencer())
	}
	return list
}

// Locks returns the locks, in the order of their names in the cell, for their tokens. They are not to be
// released but by Release.
func (l *Locks) Locks() []*client.Lock {
	var list []*client.Lock
	for _, h := range l.held {
		list = append(list, h.lock)
	}
	return list
}

// Release releases the locks, the last first; the context ends before. Nil means that all were held
// until now; else it is the errors of those that were not (client.Lock.Release). If ctx ends before the
// cell has answered it is Uncertain, and goes on in the background; another call waits for it again.
func (l *Locks) Release(ctx context.Context) error {
	l.cancel(&api.Error{Code: api.NotHeld, Op: "hold", Path: l.held[0].handle.Path(), Err: client.LockReleased, Message: "the locks were released"})
	return l.release(ctx)
}

func (l *Locks) release(ctx context.Context) error {
	if len(l.held) == 0 {
		return nil
	}
	return l.end.run(ctx, l.held[0].c, "release", l.held[0].handle.Path(), func(ctx context.Context) error {
		var faults []error
		for _, h := range slices.Backward(l.held) {
			faults = append(faults, h.release(ctx))
		}
		return errors.Join(faults...)
	})
}
