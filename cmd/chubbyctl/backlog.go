package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
)

// happening is an event of what is watched.
type happening struct {
	api.Event
	of      *watched
	initial bool  // it is no event, but what there is at the beginning
	end     error // it is no event, but why none comes after it
}

// backlog keeps the events that wait because CMD runs for others, or because things have to settle first. Of those of one kind that
// tell of the same contents the newest is kept: CMD is to run for what there is, and not for each change on the way there. Locks, and
// the children that come and go, have a history, of which every event counts.
type backlog struct {
	settle settling

	mu      sync.Mutex // guards what follows
	waiting []happening
	changed chan struct{}        // closed and replaced when something comes or is taken
	first   func() time.Duration // how long ago the first of them came, and
	last    func() time.Duration // the last
}

// settling is for how long nothing must have happened before events are taken together, and for how long they wait for that at most. 0 is
// not at all, and without limit.
type settling struct{ quiet, atMost time.Duration }

func newBacklog(settle settling) *backlog {
	return &backlog{settle: settle, changed: make(chan struct{})}
}

// put adds an event. It waits while there are api.MaxEventQueue of them: the client library then keeps as many again, and tells of the
// loss of more.
func (b *backlog) put(ctx context.Context, h happening) error {
	for {
		changed, done := b.tryPut(h)
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *backlog) tryPut(h happening) (changed <-chan struct{}, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	none := len(b.waiting) == 0
	b.waiting = slices.DeleteFunc(b.waiting, h.replaces)
	if len(b.waiting) >= api.MaxEventQueue {
		return b.changed, false
	}
	b.last = stopwatch()
	if none {
		b.first = b.last
	}
	b.waiting = append(b.waiting, h)
	b.broadcast()
	return nil, true
}

// replaces reports whether nobody needs to be told of an earlier event who is told of this one.
func (h happening) replaces(earlier happening) bool {
	if h.of != earlier.of || h.Kind != earlier.Kind || h.Path != earlier.Path || h.Child != earlier.Child {
		return false
	}
	switch h.Kind {
	case api.EventContentsModified, api.EventChildModified:
		return earlier.Generation <= h.Generation
	case api.EventMasterFailedOver, api.EventLost:
		return true
	}
	return false
}

// broadcast tells of a change; mu is held.
func (b *backlog) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// take waits for events, and takes the first; if things have to settle, it waits for that, and takes all.
func (b *backlog) take(ctx context.Context) ([]happening, error) {
	for ctx.Err() == nil {
		taken, wait, changed := b.tryTake()
		if len(taken) > 0 {
			return taken, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil, context.Cause(ctx)
}

// tryTake takes what is due; if nothing is, it says for how long to wait, and what ends the wait earlier.
func (b *backlog) tryTake() (taken []happening, wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return nil, time.Hour, b.changed
	}
	n := 1
	if b.settle.quiet > 0 {
		n = len(b.waiting)
		wait = b.settle.quiet - b.last()
		if most := b.settle.atMost; most > 0 {
			wait = min(wait, most-b.first())
		}
		if wait > 0 && n < api.MaxEventQueue && !slices.ContainsFunc(b.waiting, happening.ends) {
			return nil, wait, b.changed
		}
	}
	taken, b.waiting = slices.Clone(b.waiting[:n]), slices.Delete(b.waiting, 0, n)
	b.broadcast()
	return taken, 0, nil
}

// ends reports whether nothing comes after an event.
func (h happening) ends() bool { return h.Kind == api.EventHandleInvalid || h.end != nil }
