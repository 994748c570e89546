package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// request is that another should have what is held. The zero request never comes.
type request struct {
	asked <-chan struct{} // closed when it comes
	yield bool            // whether what is held is given up then
	told  func() string   // what the user is told then
	stop  func()          // ends what listens for it, and waits for that; may be nil
}

// end ends what listens for the request.
func (r request) end() {
	if r.stop != nil {
		r.stop()
	}
}

// noticeRequest tells the user that another should have what is held, and returns whether it is given up for that.
func (o *workOptions) noticeRequest(r request) bool {
	o.notice(r.told())
	return r.yield
}

// conflicts hears, by the events of a handle, of the first who asks for the lock that is held through it.
type conflicts struct {
	asked     chan struct{} // closed when reason is set
	reason    string        // given by the client that asks; empty if it gave none, or if it is not known
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
				return // there is no lock any more, or nobody listens
			}
			// What was missed may have been a request: to let go in vain does no harm.
			if e.Kind == api.EventConflictingLock || e.Kind == api.EventLost {
				c.reason = e.Explanation
				close(c.asked)
				return
			}
		}
	})
	return c
}

// stop ends the listening, and waits for it.
func (c *conflicts) stop() {
	c.cancel()
	c.listening.Wait()
}

// request returns what the holder of a lock does when another asks for it: it gives way.
func (c *conflicts) request(path string) request {
	return request{asked: c.asked, yield: true, stop: c.stop, told: func() string {
		why := "without a reason"
		if c.reason != "" {
			why = "(" + c.reason + ")"
		}
		return fmt.Sprintf("another asks for %s %s: giving way", path, why)
	}}
}
