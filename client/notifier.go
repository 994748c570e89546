package client

import (
	"slices"
	"sync"
)

// maxNotices limits the waiting notices of each kind: OnState has then been running for many minutes.
const maxNotices = 64

// notifier calls the logger and OnState, in order, without a mutex. It is a queue, not a channel, so that
// nothing waits for a slow logger or OnState.
type notifier struct {
	wake chan struct{} // capacity 1: the queue has work

	mu    sync.Mutex // guards queue; take no mutex under it
	queue []notice
}

type notice struct {
	tell     func()
	isChange bool // it reports a session's state; else it writes a log line
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// enqueueLog queues a log line. If too many wait, the oldest is dropped.
func (n *notifier) enqueueLog(f func()) { n.enqueue(notice{tell: f}) }

// enqueueChange queues a report of the session's state. If too many wait, it replaces the newest: so the last
// report is the session's state.
func (n *notifier) enqueueChange(f func()) { n.enqueue(notice{tell: f, isChange: true}) }

func (n *notifier) enqueue(one notice) {
	n.mu.Lock()
	var same []int // the indices of those of its kind
	for i, waiting := range n.queue {
		if waiting.isChange == one.isChange {
			same = append(same, i)
		}
	}
	if len(same) >= maxNotices {
		drop := same[0]
		if one.isChange {
			drop = same[len(same)-1]
		}
		n.queue = slices.Delete(n.queue, drop, drop+1)
	}
	n.queue = append(n.queue, one)
	n.mu.Unlock()
	wakeUp(n.wake)
}

func (n *notifier) deliverAll(stop <-chan struct{}) {
	for stopped := false; !stopped; {
		select {
		case <-n.wake:
		case <-stop:
			//mutant: return
			stopped = true
		}
		n.mu.Lock()
		queue := n.queue
		n.queue = nil
		n.mu.Unlock()
		for _, one := range queue {
			one.tell()
		}
	}
}
