package client

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
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

func lockOptionsOf(options []LockOption) (o lockOptions) {
	for _, option := range options {
		option(&o)
	}
	return o
}

// fault says what is wrong with a handle's request for a lock; "" is nothing.
func (o *lockOptions) fault(mode api.LockMode) string {
	switch {
	case !mode.Valid():
		return fmt.Sprintf("%v is not a mode of a lock", mode)
	case !o.ownsHandle && (o.shared || o.try || o.lockDelay != nil):
		return "Shared, Try and LockDelay are for Client.Acquire and Client.Do; of a handle, the call says the mode, " +
			"TryAcquire tries, and OpenOptions say the lock-delay"
	case o.atLeast != 0:
		return fmt.Sprintf("AtLeast is for Client.Do, and not negative; it is %v", o.atLeast)
	case len(o.reason) > api.MaxReason:
		return longReason(o.reason)
	case len(o.owner) > api.MaxOwner || !utf8.ValidString(o.owner):
		return fmt.Sprintf("the owner that is declared must be UTF-8 of at most %d bytes", api.MaxOwner)
	}
	return ""
}

func longReason(reason string) string {
	return fmt.Sprintf("the reason is %d bytes long; at most %d are allowed", len(reason), api.MaxReason)
}

// acquireRequest returns a request of Acquire with the options alone.
func (o *lockOptions) acquireRequest() *chubbypb.AcquireRequest {
	return &chubbypb.AcquireRequest{Reason: o.reason, Owner: o.owner, DetectDeadlock: o.detect, Quiet: o.quiet}
}

// tryRequest is acquireRequest for TryAcquire.
func (o *lockOptions) tryRequest() *chubbypb.TryAcquireRequest {
	return &chubbypb.TryAcquireRequest{Reason: o.reason, Owner: o.owner, Quiet: o.quiet}
}

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
