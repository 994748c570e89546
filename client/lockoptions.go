package client

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// LockOption qualifies the calls that acquire a lock: Acquire and TryAcquire of a Handle,
// Acquire and Do of a Client, and some of package recipe. One that the call cannot have is
// InvalidArgument.
type LockOption func(*lockOptions)

type lockOptions struct {
	reason   string
	onQueued func(Queued)
	owner    string
	detect   bool
	quiet    bool

	// Of Client.Acquire and Client.Do alone, which open the handle.
	shared, try bool
	lockDelay   *time.Duration // nil is the default
	atLeast     time.Duration  // of Client.Do alone
	ownsHandle  bool           // they have opened it
}

// Reason is shown to everyone who looks who holds the lock and why; at most
// api.MaxReason bytes.
func Reason(text string) LockOption { return func(o *lockOptions) { o.reason = text } }

// DetectDeadlock has Acquire fail with Deadlock, at once, when waiting would never end:
// when those who hold the lock, or wait for it in front, wait for locks of the same owner
// themselves. api.Error.Cycle says who waits for whom. Of several requests that wait for
// each other the one that came last fails, of those with this option. The lock is not held
// then: let go of the other locks, and begin again.
//
// owner is for whom the lock is taken: everything that is taken for one owner has to be one
// sequence of work, which gives none of its locks back while it waits for another. If it is
// empty that is the whole session. A program that takes locks in several goroutines names one
// owner for each; several sessions of one principal that work together declare the same one.
// It is at most api.MaxOwner bytes of UTF-8, and shown to those who look at the lock. Without
// the option a request is of its session, and never fails so. To TryAcquire it only says whose
// the lock is.
//
// Locks that are kept between two uses (OpenOptions.CacheLock) are given back when others ask
// for them, and so nobody waits for their owners. A cycle that a master did not see when the
// last request came, because of a fail-over, is found some seconds later. The cell must be at
// feature level 3, else the error is Unavailable; the master of an older version ignores the
// option.
func DetectDeadlock(owner string) LockOption {
	return func(o *lockOptions) { o.owner, o.detect = owner, true }
}

// Quiet has a request tell no holder of the lock that another wants it: no handle is told
// EventConflictingLock because of it, and so nobody lets go who would for another request
// (recipe.AcquireRevocable, chubbyctl acquire --give-way). It is for a TryAcquire that is not
// repeated, since what a holder lets go would be nobody's; and for work that can wait until the
// holder has done its own. The request has its place in the queue as any other, and who waits
// behind it without this option asks the holder. A lock that is kept and not used
// (OpenOptions.CacheLock) is given back all the same. A master of v0.1.0 ignores the option.
func Quiet() LockOption { return func(o *lockOptions) { o.quiet = true } }

// Queued is the position of a request in the queue of a lock.
type Queued struct {
	Place, Waiting int           // position, of so many that wait; 1 is next
	Holders        []api.Holder  // who holds the lock; at most api.MaxNamed of them
	MoreHolders    int           // besides those
	Delayed        time.Duration // for so long nobody gets the lock, because a holder failed (Chubby §2.4)
	// Estimate is how long the wait may last, if those before hold the lock for as long as others did recently;
	// 0 if the master does not know. It is a guess: show it to people, and let nothing else depend on it.
	Estimate time.Duration
}

// OnQueued has f called, by the goroutine that called Acquire, when the request has
// to wait, and whenever its position in the queue or the holders of the lock change.
func OnQueued(f func(Queued)) LockOption { return func(o *lockOptions) { o.onQueued = f } }
