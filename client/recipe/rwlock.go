package recipe

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// RWLock is the lock of a file, held by one writer or by any number of readers: the exclusive and the
// shared mode of the cell (Chubby §2.4), under the names that Go knows them by. All wait in one queue:
// nobody overtakes a writer who came earlier, so that readers cannot starve him; readers who stand
// behind each other are let in together. Only after a fail-over may a reader who is back in the queue
// before such a writer join the readers who hold the lock.
//
// Each hold has a handle of its own, so several goroutines may hold the lock for reading. It is not
// recursive: who waits for it while he holds it may wait for ever. A reader does not become a writer
// without releasing first.
type RWLock struct {
	c    *client.Client
	path string
	o    RWLockOptions
}

// RWLockOptions are those of an RWLock.
type RWLockOptions struct {
	// LockDelay is how long nobody may have the lock of a holder that has failed, after its lease: at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
}

// NewRWLock returns the lock of a file. It asks nobody: the file is created by the first who locks it,
// in a directory that is there.
func NewRWLock(c *client.Client, path string, o RWLockOptions) *RWLock {
	return &RWLock{c: c, path: path, o: o}
}

// ReadLock is the lock, held together with other readers. Release it, also when it was lost.
type ReadLock struct{ hold }

// WriteLock is the lock, held by nobody else. Release it, also when it was lost.
type WriteLock struct{ hold }

// Lock waits for the lock for writing. If ctx ends before, the error is DeadlineExceeded or Cancelled
// and names the holders, and nothing is held.
func (l *RWLock) Lock(ctx context.Context, options ...client.LockOption) (*WriteLock, error) {
	h, err := l.take(ctx, api.Exclusive, false, options)
	if err != nil {
		return nil, err
	}
	return &WriteLock{hold{h}}, nil
}

// TryLock takes the lock for writing if it is free, else it is LockHeld or LockDelayed.
func (l *RWLock) TryLock(ctx context.Context, options ...client.LockOption) (*WriteLock, error) {
	h, err := l.take(ctx, api.Exclusive, true, options)
	if err != nil {
		return nil, err
	}
	return &WriteLock{hold{h}}, nil
}

// RLock waits for the lock for reading, as Lock does.
func (l *RWLock) RLock(ctx context.Context, options ...client.LockOption) (*ReadLock, error) {
	h, err := l.take(ctx, api.Shared, false, options)
	if err != nil {
		return nil, err
	}
	return &ReadLock{hold{h}}, nil
}

// TryRLock takes the lock for reading if no writer has it, else it is LockHeld or LockDelayed. It
// does not stand in line, and is LockHeld while a writer who came earlier waits.
func (l *RWLock) TryRLock(ctx context.Context, options ...client.LockOption) (*ReadLock, error) {
	h, err := l.take(ctx, api.Shared, true, options)
	if err != nil {
		return nil, err
	}
	return &ReadLock{hold{h}}, nil
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

// hold is what reading and writing have in common.
type hold struct{ held *held }

// Context is that of the work under the lock; it ends as that of client.Lock does.
func (h hold) Context() context.Context { return h.held.lock.Context() }

// Done is closed when Context ends.
func (h hold) Done() <-chan struct{} { return h.Context().Done() }

// Err checks the clock, and returns why the lock may not be relied on any more, nil while it may.
func (h hold) Err() error { return h.held.lock.Err() }

// Path returns the path of the lock's file.
func (h hold) Path() string { return h.held.handle.Path() }

// Lock returns the lock, for its sequencer and token. It is not to be released but by Release.
func (h hold) Lock() *client.Lock { return h.held.lock }

// Release releases the lock, and returns as client.Lock.Release does. If ctx ends before the cell has
// answered it is Uncertain, and goes on in the background; another call waits for it again.
func (h hold) Release(ctx context.Context) error { return h.held.release(ctx) }
