package client

import (
	"context"
	"sync"
)

// janitor settles requests abandoned before their answers, in order, one at a time: each ends up done or
// withdrawn for good, and its number finished. They never exceed the outstanding numbers.
type janitor struct {
	wake chan struct{} // capacity 1: the queue has work

	mu      sync.Mutex // guards what follows; take no mutex under it
	queue   []func(ctx context.Context)
	settled chan struct{} // closed when the last request added is settled
}

func newJanitor() *janitor {
	settled := make(chan struct{})
	close(settled)
	return &janitor{wake: make(chan struct{}, 1), settled: settled}
}

func (j *janitor) add(settle func(ctx context.Context)) {
	settled := make(chan struct{})
	j.mu.Lock()
	j.queue = append(j.queue, func(ctx context.Context) {
		settle(ctx)
		close(settled)
	})
	j.settled = settled
	j.mu.Unlock()
	wakeUp(j.wake)
}

func (j *janitor) lastSettled() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.settled
}

// awaitSettled waits until all requests so far are settled. A new request waits for that, as an old one must
// not take effect after it.
func (j *janitor) awaitSettled(ctx context.Context) error {
	select {
	case <-j.lastSettled():
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (j *janitor) isSettled() bool {
	select {
	case <-j.lastSettled():
		return true
	default:
		return false
	}
}

// settleAll settles requests until ctx, the session's, ends: then none could take effect.
func (j *janitor) settleAll(ctx context.Context) {
	for {
		for settle := j.takeNext(); settle != nil && ctx.Err() == nil; settle = j.takeNext() {
			settle(ctx)
		}
		select {
		case <-j.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (j *janitor) takeNext() func(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		return nil
	}
	settle := j.queue[0]
	j.queue = j.queue[1:]
	return settle
}
