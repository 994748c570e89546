package client

import (
	"context"
	"sync"
)

// janitor settles the requests whose callers left before the answer: each ends
// up done or withdrawn for good, and its number finished. It works through them
// one by one, in the order they were left. There are never more of them than
// outstanding numbers.
type janitor struct {
	wake chan struct{} // capacity 1: there is something in the queue

	mu    sync.Mutex // guards what follows
	queue []*leftover
	last  *leftover // the youngest of all, settled or not
}

// leftover is one request that was left.
type leftover struct {
	settle func(ctx context.Context)
	done   chan struct{}
}

func newJanitor() *janitor { return &janitor{wake: make(chan struct{}, 1)} }

// leave hands over a request.
func (j *janitor) leave(settle func(ctx context.Context)) {
	l := &leftover{settle: settle, done: make(chan struct{})}
	j.mu.Lock()
	j.queue = append(j.queue, l)
	j.last = l
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// settled waits until everything left so far is settled. A new request waits
// for it, lest an old one that is still under way takes effect after it.
func (j *janitor) settled(ctx context.Context) error {
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

// run settles until ctx, the session's, ends: then there is nothing left that
// could take effect.
func (j *janitor) run(ctx context.Context) {
	for {
		for l := j.next(); l != nil && ctx.Err() == nil; l = j.next() {
			l.settle(ctx)
			close(l.done)
		}
		select {
		case <-j.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (j *janitor) next() *leftover {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		return nil
	}
	l := j.queue[0]
	j.queue = j.queue[1:]
	return l
}
