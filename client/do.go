package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Shared makes Client.Acquire and Client.Do take the lock in shared mode. The default is exclusive.
func Shared() LockOption { return func(o *lockOptions) { o.shared = true } }

// LockDelay is OpenOptions.LockDelay, 0 to api.MaxLockDelay, for Client.Acquire and Client.Do. Their default
// is api.DefaultLockDelay. 0 is for locks that only protect servers which check sequencers.
func LockDelay(d time.Duration) LockOption { return func(o *lockOptions) { o.lockDelay = &d } }

// Try makes Client.Acquire and Client.Do take the lock only if it is free, as Handle.TryAcquire does:
// otherwise the error is LockHeld or LockDelayed. See also Quiet.
func Try() LockOption { return func(o *lockOptions) { o.try = true } }

// AtLeast makes Client.Do keep the lock for at least that long after it was acquired, even if the function
// returns earlier. With Try it is for a job that several hosts begin at the same time of day: a host whose
// clock is behind finds the lock held, and does not repeat the job. The end of the context, or the loss of
// the lock, ends the wait.
func AtLeast(d time.Duration) LockOption { return func(o *lockOptions) { o.atLeast = d } }

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

func lockOptionsOf(options []LockOption) (o lockOptions) {
	for _, option := range options {
		option(&o)
	}
	return o
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

// LockOption qualifies calls that acquire a lock: Acquire and TryAcquire of a Handle, Acquire and Do of a
// Client, and some of package recipe. A call rejects options of others with InvalidArgument.
type LockOption func(*lockOptions)

type lockOptions struct {
	reason   string
	onQueued func(Queued)
	owner    string
	detect   bool
	quiet    bool

	// Only of Client.Acquire and Client.Do, which open the handle.
	shared, try bool
	lockDelay   *time.Duration // nil is the default
	atLeast     time.Duration  // only of Client.Do
	ownsHandle  bool           // the call has opened it
}

// Reason is shown in listings of holders; at most api.MaxReason bytes.
func Reason(text string) LockOption { return func(o *lockOptions) { o.reason = text } }

// DetectDeadlock makes Acquire fail with Deadlock, at once, when waiting would never end: when holders of the
// lock, or waiters in front, wait for locks of the same owner. api.Error.Cycle lists who waits for whose
// lock. Of several requests in a cycle, the last one with this option fails, without the lock: release the
// other locks, and begin again.
//
// owner says for what the lock is taken. All locks of one owner must belong to one sequence of work, which
// releases none of them while it waits for another. An empty owner is the whole session. A program that takes
// locks in several goroutines names one owner for each; cooperating sessions of one principal declare the
// same one. It is at most api.MaxOwner bytes of UTF-8, and shown with the lock. Without the option a request
// is its session's, and never fails so. For TryAcquire it only names the lock's owner.
//
// Kept locks (OpenOptions.CacheLock) are given back on request, so no request waits for their owners. A cycle
// that a master missed in a fail-over is found some seconds later. The cell must be at feature level 3, else
// the error is Unavailable; an older master ignores the option.
func DetectDeadlock(owner string) LockOption {
	return func(o *lockOptions) { o.owner, o.detect = owner, true }
}

// Quiet sends holders of the lock no EventConflictingLock for this request, so none lets go for it (chubbyctl
// acquire --give-way). It is for a single TryAcquire, as a lock released for it would have no taker; and for
// work that can wait until the holder has finished. The request has a
// normal queue position, and waiters behind it may ask the holder. A kept, unused lock
// (OpenOptions.CacheLock) is given back all the same. A master of v0.1.0 ignores the option.
func Quiet() LockOption { return func(o *lockOptions) { o.quiet = true } }

// Queued is a request's position in the queue of a lock.
type Queued struct {
	Place, Waiting int           // position among all waiters; 1 is next
	Holders        []api.Holder  // at most api.MaxNamed of them
	MoreHolders    int           // besides those
	Delayed        time.Duration // the lock stays blocked for so long, because a holder failed (Chubby §2.4)
	// Estimate is how long the wait may last, if earlier requests hold the lock for as long as others did
	// recently; 0 if the master does not know. It is a guess, for people only.
	Estimate time.Duration
}

// OnQueued makes the goroutine of Acquire call f when the request has to wait, and whenever its position or
// the holders of the lock change.
func OnQueued(f func(Queued)) LockOption { return func(o *lockOptions) { o.onQueued = f } }
