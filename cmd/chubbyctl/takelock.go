package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// acquire takes the lock. If it has to wait, it says what for.
func (o *acquireOptions) acquire(ctx, bound context.Context, c *client.Client) (*heldLock, error) {
	opening := client.OpenOptions{Write: true, Create: client.File, Kind: api.File, LockDelay: o.lockDelay}
	if o.giveWay {
		opening.Events = []api.EventKind{api.EventConflictingLock}
	}
	h, err := c.Open(bound, o.path.String(), opening)
	if err != nil {
		return nil, withAdvice(err, o.path, client.File)
	}
	if o.isOneTry() {
		bound, cancel := o.withTimeout(ctx)
		defer cancel()
		lock, err := h.TryAcquire(bound, o.mode(), o.lockOptions()...)
		return o.holdThrough(h, lock), o.explainRefusal(err)
	}
	waiting, cancel, explain := o.withWait(ctx, 0)
	defer cancel()
	w := o.showWait("no answer from the cell yet")
	defer w.stop()
	lock, err := h.Acquire(waiting, o.mode(), append(o.lockOptions(), client.OnQueued(w.queued))...)
	return o.holdThrough(h, lock), explain(err, w.last())
}

// holdThrough returns a lock that was acquired through a handle, and is released by Release; nil for nil.
func (o *acquireOptions) holdThrough(h *client.Handle, lock *client.Lock) *heldLock {
	t := releasable(lock)
	if t != nil && o.giveWay {
		t.request = listenForConflicts(h, lock).request(lock.Path())
	}
	return t
}

// acquireAll takes several locks, or none. If it has to wait, it says what for.
func (o *acquireOptions) acquireAll(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	var paths []string
	for _, p := range o.paths {
		paths = append(paths, p.String())
	}
	options := recipe.AllOptions{LockDelay: o.recipeDelay(), Reason: o.reason, Owner: o.owner, Try: o.isOneTry(), Quiet: o.isQuiet()}
	if o.shared {
		paths, options.Shared = nil, paths
	}
	if options.Try {
		bound, cancel := o.withTimeout(ctx)
		defer cancel()
		all, err := recipe.AcquireAll(bound, c, paths, options)
		return holdingAll(all), o.explainRefusal(withAdvice(err, o.pathOf(err), client.File))
	}
	waiting, cancel, explain := o.withWait(ctx, minCampaign)
	defer cancel()
	w := o.showWait("no answer from the cell yet")
	defer w.stop()
	options.OnQueued = w.queuedFor
	all, err := recipe.AcquireAll(waiting, c, paths, options)
	return holdingAll(all), explain(withAdvice(err, o.pathOf(err), client.File), w.last())
}

// holdingAll returns locks that are released together, the last first; nil for nil.
func holdingAll(all *recipe.Locks) *heldLock {
	if all == nil {
		return nil
	}
	return &heldLock{lock: together{all}, locks: all.Locks(), giveUp: all.Release}
}

// pathOf returns which of several paths an error is about.
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

// isOneTry reports whether the lock is not waited for.
func (o *workOptions) isOneTry() bool { return o.try || o.waits && o.wait <= o.begun() }

// explainRefusal gives the refusal of a lock that was not waited for its words and its exit code.
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

// explainHeld returns a refusal that says in one line who holds the lock, since when and why.
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
