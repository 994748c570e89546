package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
	"github.com/chubbylock/chubby/sequencer"
)

// Item is an item of a Queue that this worker has. It ends with Done, Fail, Return or Abandon, of which one is to be
// called, also when the item was lost.
type Item struct {
	// Data is what was put in. It is the worker's, who may change it: what is given back is what was put in.
	Data []byte

	id      string
	data    []byte // what was put in
	q       *Queue
	held    *hold.Held
	before  itemRecord     // as it was before the try began
	record  *itemRecord    // as it was written when the try began; nil of an item of v0.1.0
	content api.Generation // of the contents that were written then

	mu   sync.Mutex // guards fate
	fate fate
}

// fate is what was decided of an item.
type fate uint8

const (
	undecided fate = 0
	finished  fate = 1 // Done was called
	abandoned fate = 2 // Abandon was called
	failed    fate = 3 // Fail was called
	returned  fate = 4 // Return was called
)

// ID returns what Put returned.
func (i *Item) ID() string { return i.id }

// Attempt returns which try this is, from 1 on. Tries that a worker began and did not say the end of count, too. It is
// 0 for an item of v0.1.0, of which nothing is counted.
func (i *Item) Attempt() int {
	if i.record == nil {
		return 0
	}
	return i.record.Attempts
}

// IsLastAttempt reports whether Fail makes the item a dead letter (QueueOptions.Attempts).
func (i *Item) IsLastAttempt() bool {
	return i.record != nil && i.record.failed(i.q.o.Attempts, "", 0).Dead
}

// Context is that of the work on the item. It ends a margin before another can have it, as that of a
// lock does.
func (i *Item) Context() context.Context { return i.held.Lock.Context() }

// Err checks the clock, and returns why the item may not be worked on any more, nil while it may.
func (i *Item) Err() error { return i.held.Lock.Err() }

// Path returns the path of the item's file.
func (i *Item) Path() string { return i.held.Handle.Path() }

// Sequencer is for the servers that the work goes to: they refuse it once another has the item.
func (i *Item) Sequencer() sequencer.Sequencer { return i.held.Lock.Sequencer() }

// Lock returns the lock of the item. It is not to be released but by Done, Fail, Return or Abandon.
func (i *Item) Lock() *client.Lock { return i.held.Lock }

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
		return &api.Error{Code: api.NotHeld, Op: "finish", Path: i.held.Handle.Path(), Message: "the item was given back before"}
	}
	return i.held.End(ctx, "finish", func(ctx context.Context) error {
		err := i.held.Handle.Delete(ctx, client.IfSequencer(i.Sequencer()))
		_ = i.held.Handle.Close(ctx) // it says that the work has stopped; what cannot be closed ends with the session
		return i.orLost("finish", err)
	})
}

// orLost returns the error of a change that was to be made as the holder of the item: that it was lost, if that is
// what the cell has said.
func (i *Item) orLost(op string, err error) error {
	if !errors.Is(err, api.BadSequencer) && !hold.Gone(err) {
		return err
	}
	return &api.Error{Code: api.LockLost, Op: op, Path: i.held.Handle.Path(), Err: err,
		Message: fmt.Sprintf("item %s was lost before it was done; another has it, or has done it", i.id)}
}

// Fail gives the item back because the try has failed: it is in the queue again, in its old place, and nobody takes
// it for a while (as Delay; 0 is at once). If it was the last try (QueueOptions.Attempts) the item becomes a dead
// letter instead. The reason is kept with it, unless a quota leaves no room: at most api.MaxReason bytes, else Fail is
// InvalidArgument and the item is still held. Its other errors are those of Done; after PermissionDenied the item is in the queue again,
// and the try counts as one that did not say how it ended. An item of v0.1.0 is in the queue at once, and has no reason. After
// Done, Return or Abandon it is NotHeld; another call of Fail waits for the outcome of the first.
func (i *Item) Fail(ctx context.Context, reason string, after time.Duration) error {
	const op = "give back"
	fault := func(code api.Code, format string, args ...any) error {
		return &api.Error{Code: code, Op: op, Path: i.held.Handle.Path(), Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(reason) > api.MaxReason:
		return fault(api.InvalidArgument, "the reason has %d bytes; want at most %d", len(reason), api.MaxReason)
	case after < 0 || after > MaxDelay:
		return fault(api.InvalidArgument, "a delay of %v; want 0 to %v", after, MaxDelay)
	case !i.decide(failed):
		return fault(api.NotHeld, "the item was done or given back before")
	}
	return i.giveBack(ctx, op, func(ctx context.Context) error { return i.writeFailure(ctx, reason, seconds(after)) })
}

// giveBack has something written as the holder of the item, and releases it then.
func (i *Item) giveBack(ctx context.Context, op string, write func(context.Context) error) error {
	return i.held.End(ctx, op, func(ctx context.Context) error {
		err := write(ctx)
		releasing := i.held.Lock.Release(ctx)
		_ = i.held.Handle.Close(ctx)
		if err == nil && errors.Is(releasing, api.LockLost) {
			return nil // it was lost after it had been given back
		}
		return cmp.Or(err, releasing)
	})
}

// writeFailure writes how the try ended, as the holder of the item.
func (i *Item) writeFailure(ctx context.Context, reason string, delay int64) error {
	if i.record == nil {
		return nil
	}
	next := i.record.failed(i.q.o.Attempts, reason, delay)
	stat, err := i.write(ctx, "give back", next)
	if err == nil && next.Dead {
		markDead(ctx, i.held.Client, i.q.dir, i.id, stat.Content)
	}
	return err
}

// write writes a record, as the holder of the item, in the place of that of the try.
func (i *Item) write(ctx context.Context, op string, r itemRecord) (api.Stat, error) {
	stat, err := r.write(ctx, i.held.Handle, i.held.Lock, i.data, i.content)
	return stat, i.orLost(op, err)
}

// Return gives the item back because the work on it has not begun, and cannot: it is in the queue again as it was before
// it was taken, at once, and the try does not count. It is for a worker that finds, after Take, that it lacks what the
// work needs: such a worker, started again and again, would make dead letters of a whole queue. A worker that has begun, and
// calls it, takes from the queue the limit of tries (QueueOptions.Attempts). It changes nothing once another has had the
// item: LockLost. Its other errors are those of Done; after PermissionDenied the item is in the queue again, and the try
// counts as one that did not say how it ended. After Done, Fail and Abandon it does nothing, so that it can be deferred;
// another call waits for the outcome of the first.
func (i *Item) Return(ctx context.Context) error {
	if !i.decide(returned) {
		return nil
	}
	return i.giveBack(ctx, "return", i.writeReturn)
}

// writeReturn writes what there was before the try, as the holder of the item. The delay is left out: it has passed.
func (i *Item) writeReturn(ctx context.Context) error {
	if i.record == nil {
		return nil
	}
	before := i.before
	before.Delay = 0
	_, err := i.write(ctx, "return", before)
	return err
}

// Abandon gives the item back: it is in the queue again, in its old place, at once. The try counts as one that did not
// say how it ended. After Done, Fail and Return it does nothing, so that it can be deferred. Its errors are those of client.Lock.Release.
func (i *Item) Abandon(ctx context.Context) error {
	if !i.decide(abandoned) {
		return nil
	}
	return i.held.Release(ctx)
}
