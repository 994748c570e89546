package client

import (
	"context"
	"sync"
)

// janitor settles requests abandoned before their answers, in order, one at a time: each ends up done or
// withdrawn for good, and its number finished. They never exceed the outstanding numbers.
type janitor struct {
	wake chan struct{} // capacity 1: the queue has work

	mu    sync.Mutex // guards what follows; take no mutex under it
	queue []*abandoned
	last  *abandoned // the last one added, settled or not
}

type abandoned struct {
	settle func(ctx context.Context)
	done   chan struct{}
}

func newJanitor() *janitor { return &janitor{wake: make(chan struct{}, 1)} }

func (j *janitor) add(settle func(ctx context.Context)) {
	request := &abandoned{settle: settle, done: make(chan struct{})}
	j.mu.Lock()
	j.queue = append(j.queue, request)
	j.last = request
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// awaitSettled waits until all requests so far are settled. A new request waits for that, as an old one must
// not take effect after it.
func (j *janitor) awaitSettled(ctx context.Context) error {
	j.mu.Lock()
	last := j.last
	j.mu.Unlock()
	if last == nil {
		return nil
	}
	select {
	case <-last.done:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (j *janitor) isSettled() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last == nil {
		return true
	}
	select {
	case <-j.last.done:
		return true
	default:
		return false
	}
}

// settleAll settles requests until ctx, the session's, ends: then none could take effect.
func (j *janitor) settleAll(ctx context.Context) {
	for {
		for request := j.takeNext(); request != nil && ctx.Err() == nil; request = j.takeNext() {
			request.settle(ctx)
			close(request.done)
		}
		select {
		case <-j.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (j *janitor) takeNext() *abandoned {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		return nil
	}
	request := j.queue[0]
	j.queue = j.queue[1:]
	return request
}
