package recipe

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
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
	o := client.OpenOptions{Write: true, Create: client.File, LockDelay: hold.Delay(l.o.LockDelay)}
	h, err := hold.Take(ctx, l.c, l.path, o, mode, try, options...)
	if api.CodeOf(err) == api.Uncertain || api.CodeOf(err) == api.Unavailable {
		//mutant: /* nothing */ //by TestRWLockCutOff of ./client/recipe
		err = hold.Ended(ctx, err, "acquire", l.path) // the file was not open yet
	}
	if err != nil {
		return nil, err
	}
	return &held{h}, nil
}

// NoLockDelay is a LockDelay with which the locks of a failed holder are free when its lease ends. It is for
// work whose servers check sequencers.
const NoLockDelay time.Duration = hold.NoLockDelay

// held is a lock with a handle of its own, which only Release gives up.
type held struct{ hold *hold.Held }

// Context is that of the work under the lock; it ends as client.Lock's does.
func (h *held) Context() context.Context { return h.Lock().Context() }

// Done is closed when Context ends.
func (h *held) Done() <-chan struct{} { return h.Context().Done() }

// Err checks the clock, and returns why the lock is unreliable, or nil.
func (h *held) Err() error { return h.Lock().Err() }

// Path returns the path of the lock's file.
func (h *held) Path() string { return h.hold.Handle.Path() }

// Lock returns the lock, for its sequencer and token. Only Release releases it.
func (h *held) Lock() *client.Lock { return h.hold.Lock }

// Release releases the lock, and returns as client.Lock.Release does. After
// Uncertain it goes on in the background; another call waits for it again.
func (h *held) Release(ctx context.Context) error { return h.hold.Release(ctx) }
