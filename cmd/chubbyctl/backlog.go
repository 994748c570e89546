package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
)

// happening is an event of a watched node.
type happening struct {
	api.Event
	of      *watched
	initial bool  // no event, but the initial state
	end     error // no event, but why no more follow
}

// backlog holds pending events while CMD runs or things settle. Of events of one kind about the same contents
// it keeps the newest: CMD runs for the present contents, not for each change. Every event of locks and of
// children counts.
type backlog struct {
	settle settling

	mu      sync.Mutex // guards what follows
	waiting []happening
	changed chan struct{}        // closed and replaced when something is added or taken
	first   func() time.Duration // time since the first event,
	last    func() time.Duration // and since the last
}

// settling says how long nothing must happen before events are taken together, and how long they wait for that
// at most. 0: not at all, and without limit.
type settling struct{ quiet, atMost time.Duration }

func newBacklog(settle settling) *backlog {
	return &backlog{settle: settle, changed: make(chan struct{})}
}

// put adds an event. It blocks at api.MaxEventQueue events; then the client library queues as many again, and
// reports the loss of more.
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

// replaces reports whether h makes an earlier event unnecessary.
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

func (b *backlog) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// take waits for the first event and takes it; with settling, it waits for that and takes all.
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

// tryTake takes the events that are due. Without any, it returns how long to wait, and what ends the wait
// early.
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

// ends reports whether no event follows.
func (h happening) ends() bool { return h.Kind == api.EventHandleInvalid || h.end != nil }
