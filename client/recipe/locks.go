package recipe

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// RWLock is the lock of a file, held by one writer or any number of readers: the exclusive and the shared
// mode of the cell (Chubby §2.4), under Go's names. All wait in one queue. No request overtakes an earlier
// writer, so readers cannot starve it; adjacent readers are let in together. Only after a fail-over may a
// reader that is back in the queue before an earlier writer join the readers that hold the lock.
//
// Each hold has its own handle, so several goroutines may hold the lock for reading. It is not recursive: a
// holder that waits for it may wait permanently. A reader must release before it becomes a writer.
type RWLock struct {
	c    *client.Client
	path string
	o    RWLockOptions
}

// RWLockOptions qualify NewRWLock.
type RWLockOptions struct {
	// LockDelay blocks the lock of a failed holder after its lease: at most api.MaxLockDelay. Zero is
	// api.DefaultLockDelay; NoLockDelay is for servers that check sequencers.
	LockDelay time.Duration
}

// NewRWLock returns the lock of a file, without a call: the first locker creates the file, in an existing
// directory.
func NewRWLock(c *client.Client, path string, o RWLockOptions) *RWLock {
	return &RWLock{c: c, path: path, o: o}
}

// ReadLock is the lock, held together with other readers. Release it, also after it was lost.
type ReadLock struct{ *held }

// WriteLock is the lock, held exclusively. Release it, also after it was lost.
type WriteLock struct{ *held }

// Lock waits for the lock for writing. If ctx ends first, nothing is held, and the error is DeadlineExceeded
// or Cancelled and names the holders.
func (l *RWLock) Lock(ctx context.Context, options ...client.LockOption) (*WriteLock, error) {
	h, err := l.take(ctx, api.Exclusive, false, options)
	if err != nil {
		return nil, err
	}
	return &WriteLock{h}, nil
}

// TryLock takes the lock for writing if it is free; otherwise the error is LockHeld or LockDelayed.
func (l *RWLock) TryLock(ctx context.Context, options ...client.LockOption) (*WriteLock, error) {
	h, err := l.take(ctx, api.Exclusive, true, options)
	if err != nil {
		return nil, err
	}
	return &WriteLock{h}, nil
}

// RLock waits for the lock for reading, as Lock does.
func (l *RWLock) RLock(ctx context.Context, options ...client.LockOption) (*ReadLock, error) {
	h, err := l.take(ctx, api.Shared, false, options)
	if err != nil {
		return nil, err
	}
	return &ReadLock{h}, nil
}

// TryRLock takes the lock for reading if no writer has it; otherwise the error is LockHeld or LockDelayed. It
// does not queue, and is LockHeld while an earlier writer waits.
func (l *RWLock) TryRLock(ctx context.Context, options ...client.LockOption) (*ReadLock, error) {
	h, err := l.take(ctx, api.Shared, true, options)
	if err != nil {
		return nil, err
	}
	return &ReadLock{h}, nil
}

func (l *RWLock) take(ctx context.Context, mode api.LockMode, try bool, options []client.LockOption) (*held, error) {
	o := client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(l.o.LockDelay)}
	h, err := take(ctx, l.c, l.path, o, mode, try, options...)
	if api.CodeOf(err) == api.Uncertain || api.CodeOf(err) == api.Unavailable {
		//mutant: /* nothing */ //by TestRWLockCutOff of ./client/recipe
		err = ended(ctx, err, "acquire", l.path) // the file was not open yet
	}
	return h, err
}

// Revocable is an exclusive lock whose holder lets go when another asks for it: for work that can be put off.
// The request is polite: the cell tells the holder of a waiting request and its reason, and takes nothing
// away. A holder that ignores it keeps the lock. (An operator's chubbyctl lock break is not polite.)
//
// Release it, also after it was lost. Its methods may be called from several goroutines.
type Revocable struct {
	*held
	ctx    context.Context //nolint:containedctx // of the work under the lock, as that of client.Lock
	cancel context.CancelCauseFunc
	asked  chan struct{} // closed when reason is set
	reason string
	listen sync.WaitGroup // hears requests
}

// RevocableOptions qualify AcquireRevocable.
type RevocableOptions struct {
	// LockDelay blocks the lock of a failed holder after its lease: at most api.MaxLockDelay. Zero is
	// api.DefaultLockDelay; NoLockDelay is for servers that check sequencers.
	LockDelay time.Duration
	// Reason is shown in listings of holders; at most api.MaxReason bytes. With Insist, a Revocable that
	// holds the lock gets it.
	Reason string
	// Insist also asks another Revocable that holds the lock to let go. Without it the request is quiet
	// (client.Quiet): it waits until like work has ended, or lets go for another. Two insisting loops end
	// each other's work repeatedly, each after Notice.
	Insist bool
	// Notice is how long the work may go on after another has asked for the lock: then Context ends. 0 ends
	// it at once. The holder has that long even if a request waited before it got the lock.
	Notice time.Duration
}

// AcquireRevocable waits for the lock of a file, created if absent, in an existing directory. If ctx ends
// first, nothing is held, and the error is DeadlineExceeded or Cancelled and names the holders. A negative
// Notice is InvalidArgument.
func AcquireRevocable(ctx context.Context, c *client.Client, path string, o RevocableOptions) (*Revocable, error) {
	if o.Notice < 0 {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: path, Message: "Notice is " + o.Notice.String() + "; want 0 or more"}
	}
	opening := client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(o.LockDelay), Events: []api.EventKind{api.EventConflictingLock}}
	how := []client.LockOption{client.Reason(o.Reason)}
	//mutant: if false { //by TestRevocablesDoNotAskEachOther of ./client/recipe
	if !o.Insist {
		how = append(how, client.Quiet())
	}
	for {
		h, err := take(ctx, c, path, opening, api.Exclusive, false, how...)
		if err == nil {
			return newRevocable(h, o.Notice), nil
		}
		if !passing(err) {
			return nil, ended(ctx, err, "acquire", path)
		}
	}
}

func newRevocable(h *held, notice time.Duration) *Revocable {
	r := &Revocable{held: h, asked: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(h.lock.Context())
	r.listen.Go(func() { r.heed(notice) })
	return r
}

// heed waits for a request, and ends the context when notice has passed.
func (r *Revocable) heed(notice time.Duration) {
	for {
		e, err := r.handle.Next(r.ctx)
		if err != nil {
			return // the lock is gone
		}
		if e.Kind == api.EventConflictingLock {
			r.reason = e.Explanation
			break
		}
		if e.Kind == api.EventLost { // perhaps a request: letting go in vain is harmless
			break
		}
	}
	close(r.asked)
	//mutant: timer := time.NewTimer(2 * notice) //by TestHolderLetsGoWhenItIsAsked of ./client/recipe
	timer := time.NewTimer(notice)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.cancel(&api.Error{Code: api.Cancelled, Op: "work under the lock", Path: r.Path(),
			Message: "another asks for it: " + cmp.Or(r.reason, "it gives no reason")})
	case <-r.ctx.Done():
	}
}

// Context is that of the work under the lock. It ends as client.Lock's does, and, with the code Cancelled and
// the other's reason, when another has asked for the lock and Notice has passed. The lock stays held until
// Release.
func (r *Revocable) Context() context.Context { return r.ctx }

// Done is closed when Context ends.
func (r *Revocable) Done() <-chan struct{} { return r.ctx.Done() }

// Asked is closed when another has asked for the lock, even if it has given up since.
func (r *Revocable) Asked() <-chan struct{} { return r.asked }

// AskedFor returns the first request's reason: "" without a reason or a request.
func (r *Revocable) AskedFor() string {
	select {
	case <-r.asked:
		return r.reason
	default:
		return ""
	}
}

// Release releases the lock, and returns as client.Lock.Release does. After
// Uncertain it goes on in the background; another call waits for it again.
func (r *Revocable) Release(ctx context.Context) error {
	r.cancel(client.LockReleased)
	r.listen.Wait()
	return r.held.Release(ctx)
}
