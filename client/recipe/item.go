package recipe

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// Item is an item of a Queue that this worker has. It ends with Done or Abandon, of which one is to be
// called, also when the item was lost.
type Item struct {
	// Data is what was put in.
	Data []byte

	id   string
	held *held

	mu   sync.Mutex // guards fate
	fate fate
}

// fate is what was decided of an item.
type fate uint8

const (
	undecided fate = 0
	finished  fate = 1 // Done was called
	abandoned fate = 2 // Abandon was called
)

// ID returns what Put returned.
func (i *Item) ID() string { return i.id }

// Context is that of the work on the item. It ends a margin before another can have it, as that of a
// lock does.
func (i *Item) Context() context.Context { return i.held.lock.Context() }

// Err checks the clock, and returns why the item may not be worked on any more, nil while it may.
func (i *Item) Err() error { return i.held.lock.Err() }

// Path returns the path of the item's file.
func (i *Item) Path() string { return i.held.handle.Path() }

// Sequencer is for the servers that the work goes to: they refuse it once another has the item.
func (i *Item) Sequencer() sequencer.Sequencer { return i.held.lock.Sequencer() }

// Lock returns the lock of the item. It is not to be released but by Done or Abandon.
func (i *Item) Lock() *client.Lock { return i.held.lock }

// decide decides, unless the other was decided before.
func (i *Item) decide(f fate) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fate == undecided {
		i.fate = f
	}
	return i.fate == f
}

// Done takes the item out of the queue. LockLost says that the item was lost before: it is another's, or
// has been done by another, and nothing is done to it then. SessionExpired says that the item went with the
// session; but if the cell's answer was lost before that, the item may be done, and out of the queue. After
// any other refusal (PermissionDenied) the item is in the queue again. If ctx ends before the cell has
// answered it is Uncertain, and goes on in the background; another call waits for its outcome.
func (i *Item) Done(ctx context.Context) error {
	if !i.decide(finished) {
		return &api.Error{Code: api.NotHeld, Op: "finish", Path: i.held.handle.Path(), Message: "the item was abandoned before"}
	}
	return i.held.end.run(ctx, i.held.c, "finish", i.held.handle.Path(), func(ctx context.Context) error {
		err := i.held.handle.Delete(ctx, client.IfSequencer(i.Sequencer()))
		_ = i.held.handle.Close(ctx) // it says that the work has stopped; what cannot be closed ends with the session
		if errors.Is(err, api.BadSequencer) || gone(err) {
			return &api.Error{Code: api.LockLost, Op: "finish", Path: i.held.handle.Path(), Err: err,
				Message: fmt.Sprintf("item %s was lost before it was done; another has it, or has done it", i.id)}
		}
		return err
	})
}

// Abandon gives the item back: it is in the queue again, in its old place, at once. After Done it does
// nothing, so that it can be deferred. Its errors are those of client.Lock.Release.
func (i *Item) Abandon(ctx context.Context) error {
	if !i.decide(abandoned) {
		return nil
	}
	return i.held.release(ctx)
}
