package client

import (
	"slices"
	"sync"
)

// maxNotices is how many notices of each kind may wait. Sessions change state once in
// a lease at most, so OnState has then not returned for many minutes.
const maxNotices = 64

// notifier calls the logger and OnState, in order, while no mutex is held. It is a
// queue and not a channel, so that nothing waits for a slow logger or OnState.
type notifier struct {
	wake chan struct{} // capacity 1: there is something in the queue

	mu    sync.Mutex // guards queue; no other mutex is taken while it is held
	queue []notice
}

// notice is one call that is to be made.
type notice struct {
	call     func()
	isChange bool // it reports a change of the session's state; else it writes a line of the log
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// enqueueLog queues a call that writes a line of the log. If too many wait, the
// oldest line is dropped.
func (n *notifier) enqueueLog(f func()) {
	n.mu.Lock()
	n.makeRoom(false, func(list []int) int { return list[0] })
	n.queue = append(n.queue, notice{call: f})
	n.mu.Unlock()
	n.wakeUp()
}

// enqueueChange queues a call that reports a change of the session's state. If too
// many wait, it takes the place of the newest of them: so the last that is reported
// is the state in which the session is, however many changes and lines wait.
func (n *notifier) enqueueChange(f func()) {
	n.mu.Lock()
	n.makeRoom(true, func(list []int) int { return list[len(list)-1] })
	n.queue = append(n.queue, notice{call: f, isChange: true})
	n.mu.Unlock()
	n.wakeUp()
}

// makeRoom drops one of the notices of that kind if too many wait: the one that which
// chooses, from their indices; mu is held.
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

// deliverAll delivers notices until stop is closed, and then those that still wait.
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

// deliver delivers the notices that wait.
func (n *notifier) deliver() {
	n.mu.Lock()
	queue := n.queue
	n.queue = nil
	n.mu.Unlock()
	for _, one := range queue {
		one.call()
	}
}
