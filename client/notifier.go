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
	call     func()
	isChange bool // it reports a session's state; else it writes a log line
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// enqueueLog queues a log line. If too many wait, the oldest is dropped.
func (n *notifier) enqueueLog(f func()) {
	n.mu.Lock()
	n.makeRoom(false, func(list []int) int { return list[0] })
	n.queue = append(n.queue, notice{call: f})
	n.mu.Unlock()
	n.wakeUp()
}

// enqueueChange queues a report of the session's state. If too many wait, it replaces the newest: so the last
// report is the session's state.
func (n *notifier) enqueueChange(f func()) {
	n.mu.Lock()
	n.makeRoom(true, func(list []int) int { return list[len(list)-1] })
	n.queue = append(n.queue, notice{call: f, isChange: true})
	n.mu.Unlock()
	n.wakeUp()
}

// makeRoom drops one notice of that kind if too many wait: which chooses it from their indices; mu is held.
func (n *notifier) makeRoom(change bool, which func(list []int) int) {
	var list []int
	for i, one := range n.queue {
		if one.isChange == change {
			list = append(list, i)
		}
	}
	if len(list) >= maxNotices {
		i := which(list)
		n.queue = slices.Delete(n.queue, i, i+1)
	}
}

func (n *notifier) wakeUp() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) deliverAll(stop <-chan struct{}) {
	for stopped := false; !stopped; {
		select {
		case <-n.wake:
		case <-stop:
			//mutant: return
			stopped = true
		}
		n.deliver()
	}
}

func (n *notifier) deliver() {
	n.mu.Lock()
	queue := n.queue
	n.queue = nil
	n.mu.Unlock()
	for _, one := range queue {
		one.call()
	}
}
