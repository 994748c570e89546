package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// request is another client's request for what is held. The zero request never comes.
type request struct {
	asked <-chan struct{} // closed when it comes
	yield bool            // give up what is held then
	told  func() string   // the message to the user
	stop  func()          // ends the listener and waits for it; may be nil
}

// end ends the listener.
func (r request) end() {
	if r.stop != nil {
		r.stop()
	}
}

// noticeRequest tells the user about the request, and reports whether to give way.
func (o *workOptions) noticeRequest(r request) bool {
	o.notice(r.told())
	return r.yield
}

// conflicts receives, by a handle's events, the first request for the lock held through it.
type conflicts struct {
	asked     chan struct{} // closed when reason is set
	reason    string        // the requester's; empty if unknown or not given
	listening sync.WaitGroup
	cancel    context.CancelFunc
}

// listenForConflicts begins to listen; stop ends it.
func listenForConflicts(h *client.Handle, lock *client.Lock) *conflicts {
	ctx, cancel := context.WithCancel(lock.Context())
	c := &conflicts{asked: make(chan struct{}), cancel: cancel}
	c.listening.Go(func() {
		for {
			e, err := h.Next(ctx)
			if err != nil {
				return // the lock is gone, or nobody listens
			}
			// A missed event may have been a request: an unneeded release does no harm.
			if e.Kind == api.EventConflictingLock || e.Kind == api.EventLost {
				c.reason = e.Explanation
				close(c.asked)
				return
			}
		}
	})
	return c
}

// stop ends the listener and waits for it.
func (c *conflicts) stop() {
	c.cancel()
	c.listening.Wait()
}

// request returns the reaction of a lock's holder to a request: it gives way.
func (c *conflicts) request(path string) request {
	return request{asked: c.asked, yield: true, stop: c.stop, told: func() string {
		why := "without a reason"
		if c.reason != "" {
			why = "(" + c.reason + ")"
		}
		return fmt.Sprintf("another asks for %s %s: giving way", path, why)
	}}
}
