package client

import "sync"

// mostNotices is how many notices may wait for their receiver. Sessions change
// state once in a lease at most, so it has then been asleep for many minutes.
const mostNotices = 64

// notifier runs what is to be told, in order, outside of every lock. It is a
// queue and not a channel, so that nobody ever waits for the receiver.
type notifier struct {
	wake chan struct{} // capacity 1: there is something in the queue

	mu    sync.Mutex // guards queue
	queue []func()
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// post queues one notice, and forgets the oldest when there are too many.
func (n *notifier) post(notice func()) {
	n.mu.Lock()
	if len(n.queue) == mostNotices {
		n.queue = n.queue[1:]
	}
	n.queue = append(n.queue, notice)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run delivers until stop is closed.
func (n *notifier) run(stop <-chan struct{}) {
	for {
		n.mu.Lock()
		queue := n.queue
		n.queue = nil
		n.mu.Unlock()
		for _, notice := range queue {
			notice()
		}
		select {
		case <-n.wake:
		case <-stop:
			return
		}
	}
}
