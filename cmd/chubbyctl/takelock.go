package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

func (o *acquireOptions) acquire(ctx, bound context.Context, c *client.Client) (*heldLock, error) {
	opening := client.OpenOptions{Write: true, Create: client.File, Kind: api.File, LockDelay: o.lockDelay}
	if o.giveWay {
		opening.Events = []api.EventKind{api.EventConflictingLock}
	}
	h, err := c.Open(bound, o.path.String(), opening)
	if err != nil {
		return nil, withAdvice(err, o.path, client.File)
	}
	return o.tryOrWait(ctx, 0, "no answer from the cell yet", func(ctx context.Context, w *lockWait) (*heldLock, error) {
		acquire, options := h.TryAcquire, o.lockOptions()
		if w != nil {
			acquire, options = h.Acquire, append(options, client.OnQueued(w.queued))
		}
		lock, err := acquire(ctx, o.mode(), options...)
		return o.holdThrough(h, lock), err
	})
}

// holdThrough returns a lock acquired through a handle, which Release gives up; nil for nil.
func (o *acquireOptions) holdThrough(h *client.Handle, lock *client.Lock) *heldLock {
	t := releasable(lock)
	if t != nil && o.giveWay {
		t.request = listenForConflicts(h, lock).request(lock.Path())
	}
	return t
}

// acquireAll takes all locks, or none. If it has to wait, it says what for.
func (o *acquireOptions) acquireAll(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	var paths []string
	for _, p := range o.paths {
		paths = append(paths, p.String())
	}
	options := recipe.AllOptions{LockDelay: o.recipeDelay(), Reason: o.reason, Owner: o.owner, Quiet: o.isQuiet()}
	if o.shared {
		paths, options.Shared = nil, paths
	}
	return o.tryOrWait(ctx, minCampaign, "no answer from the cell yet", func(ctx context.Context, w *lockWait) (*heldLock, error) {
		if options.Try = w == nil; w != nil {
			options.OnQueued = w.queuedFor
		}
		all, err := recipe.AcquireAll(ctx, c, paths, options)
		return holdingAll(all), withAdvice(err, o.pathOf(err), client.File)
	})
}

// holdingAll returns locks that are released together, the last first; nil for nil.
func holdingAll(all *recipe.Locks) *heldLock {
	if all == nil {
		return nil
	}
	return &heldLock{lock: together{all}, locks: all.Locks(), giveUp: all.Release}
}

// pathOf returns which path an error is about.
func (o *workOptions) pathOf(err error) api.Path {
	var e *api.Error
	if errors.As(err, &e) {
		for _, p := range o.paths {
			if p.String() == e.Path {
				return p
			}
		}
	}
	return o.path
}

func (o *acquireOptions) mode() api.LockMode {
	if o.shared {
		return api.Shared
	}
	return api.Exclusive
}

// isOneTry reports whether there is no wait for the lock.
func (o *workOptions) isOneTry() bool { return o.try || o.waits && o.wait <= o.begun() }

// taking takes what is to be held; with nil in one try, without waiting.
type taking = func(context.Context, *lockWait) (*heldLock, error)

// tryOrWait takes what is to be held, in one try if no wait is requested. --wait limits a wait, but to no less
// than minimum. The user sees what it waits for, at first early.
func (o *workOptions) tryOrWait(ctx context.Context, minimum time.Duration, early string, take taking) (*heldLock, error) {
	if o.isOneTry() {
		bound, cancel := o.withTimeout(ctx)
		defer cancel()
		t, err := take(bound, nil)
		return t, o.explainRefusal(err)
	}
	return o.waitFor(ctx, minimum, early, take)
}

// waitFor is tryOrWait that always waits.
func (o *workOptions) waitFor(ctx context.Context, minimum time.Duration, early string, take taking) (*heldLock, error) {
	waiting, cancel, explain := o.withWait(ctx, minimum)
	defer cancel()
	w := o.showWait(early)
	defer w.stop()
	t, err := take(waiting, w)
	return t, explain(err, w.last())
}

// explainRefusal gives the refusal of a lock without a wait its text and exit code.
func (o *workOptions) explainRefusal(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Code != api.LockHeld && refused.Code != api.LockDelayed {
		return err
	}
	told := o.explainHeld(refused)
	if o.waits {
		return &exitError{exitWaited, o.waitRanOut(o.pathOf(refused), told.Message)}
	}
	told.Message += "; try again later, or wait without --try"
	return &exitError{exitHeld, told}
}

// explainHeld returns a refusal with who holds the lock, since when and why.
func (o *workOptions) explainHeld(e *api.Error) *api.Error {
	told := *e
	told.Op, told.Path, told.Err = o.verb, o.pathOf(e).String(), nil
	switch {
	case e.Code == api.LockDelayed:
		told.Message = fmt.Sprintf("a holder failed, and nobody may have the lock for another %s", term.Roughly(e.Remaining))
	case len(e.Holders) > 0:
		told.Message = heldBy(e.Holders)
	}
	return &told
}
