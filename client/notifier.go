package client

import (
	"slices"
	"sync"
)

// maxNotices is how many notices of each kind may wait for their receiver.
// Sessions change state once in a lease at most, so it has then been asleep for
// many minutes.
const maxNotices = 64

// notifier runs what is to be told, in order, outside of every lock. It is a
// queue and not a channel, so that nobody ever waits for the receiver.
type notifier struct {
	wake chan struct{} // capacity 1: there is something in the queue

	mu    sync.Mutex // guards queue
	queue []notice
}

// notice is one thing to be told.
type notice struct {
	tell   func()
	change bool // of the session's state; else a line of the log
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// log queues a line of the log. Of too many the oldest is left out.
func (n *notifier) log(tell func()) {
	n.mu.Lock()
	n.limit(false, func(list []int) int { return list[0] })
	n.queue = append(n.queue, notice{tell: tell})
	n.mu.Unlock()
	n.rouse()
}

// change queues a change of the session's state. Of too many the newest takes the
// place of the one before it, so that the last that is told is the state that the
// session is in, however many there are, and whatever else is to be told.
func (n *notifier) change(tell func()) {
	n.mu.Lock()
	n.limit(true, func(list []int) int { return list[len(list)-1] })
	n.queue = append(n.queue, notice{tell: tell, change: true})
	n.mu.Unlock()
	n.rouse()
}

// limit makes room for a notice of that kind: which says what is left out, of the
// indices of those that wait; mu is held.
func (n *notifier) limit(change bool, which func(list []int) int) {
	var list []int
	for i, one := range n.queue {
		if one.change == change {
			list = append(list, i)
		}
	}
	if len(list) >= maxNotices {
		i := which(list)
		n.queue = slices.Delete(n.queue, i, i+1)
	}
}

func (n *notifier) rouse() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run delivers until stop is closed, and then what is still to be told.
func (n *notifier) run(stop <-chan struct{}) {
	for stopped := false; !stopped; {
		select {
		case <-n.wake:
		case <-stop:
			stopped = true
		}
		n.deliver()
	}
}

// deliver tells what waits.
func (n *notifier) deliver() {
	n.mu.Lock()
	queue := n.queue
	n.queue = nil
	n.mu.Unlock()
	for _, one := range queue {
		one.tell()
	}
}
