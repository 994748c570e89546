package client

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

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

// Quiet sends holders of the lock no EventConflictingLock for this request, so none lets go for it
// (recipe.AcquireRevocable, chubbyctl acquire --give-way). It is for a single TryAcquire, as a lock released
// for it would have no taker; and for work that can wait until the holder has finished. The request has a
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
