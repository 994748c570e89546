package celltest

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
)

// drillLimit is the longest time, in virtual time, that a drill may take.
const drillLimit = time.Minute

// Expire ends a session as if its client had not reached the master for a whole
// lease: its ephemeral files are removed, and its locks are free after their
// lock-delay. It returns when that is committed. The client notices within a
// round trip. Expire has at once, and without the cause, the same result as a
// long loss of the connection; afterwards an application cannot tell the
// difference.
//
// Expire takes the session's locks although the client's lease still runs. So a
// lock without a lock-delay may have two holders until the client notices. No
// other failure causes that.
func (c *Cell) Expire(id api.SessionID) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drillLimit)
	defer cancel()
	for tried := false; ; tried = true {
		err := c.Replica(c.Master()).ExpireSession(ctx, id)
		switch {
		case err == nil, tried && errors.Is(err, api.NotFound):
			return // or an earlier attempt ended it, and its answer was lost
		case !errors.Is(err, api.NotMaster) && !errors.Is(err, api.Uncertain):
			c.t.Fatalf("expire session %v: %v", id, err)
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("expire session %v: %v; and %v", id, err, ctx.Err())
		case <-time.After(10 * time.Millisecond): // the cell elects a master
		}
	}
}

// FailOver kills the master, as Kill does, waits until another replica serves,
// and returns the killed one; Restart brings it back. It imitates a machine
// that crashes. A majority of the replicas must stay up.
func (c *Cell) FailOver() (killed string) {
	c.t.Helper()
	killed = c.Master()
	c.Kill(killed)
	c.Master()
	return killed
}

// Transfer makes the master hand over to another replica, and returns when that
// one serves. No replica stops. It imitates maintenance by an operator, who tries
// again if the other is not elected.
func (c *Cell) Transfer() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drillLimit)
	defer cancel()
	var last error
	for before := c.Master(); c.Master() == before; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			c.t.Fatalf("replica %s is still the master, after %v of attempts to hand over: %v", before, drillLimit, last)
		}
		last = cmp.Or(c.Replica(before).Transfer(ctx, ""), last)
	}
}

// Pause stops hosts: those of clients that got their ClockOf, or replicas, by
// their ids. Until Resume their clocks stand still, and nothing that they send
// or that is sent to them arrives. After Resume the clocks at once show what
// they would have shown, and everything arrives late, in order. Connections do
// not break.
//
// It imitates SIGSTOP, a long garbage collection, a machine that is suspended,
// or a virtual machine that is moved. Goroutines and timers in the process of
// the test continue to run. A client does no more in a pause than in an
// instant, because its clock does not advance. But waiting calls may reach their
// timeouts, and a call that the test makes in a pause counts as made in the
// moment before it: a read may be answered from the cache, for example. The
// timers of a replica's Raft expire too: a master that is paused knows when it
// resumes that it is no longer the master, while one that was really stopped
// finds out only then.
func (c *Cell) Pause(hosts ...string) {
	for _, h := range hosts {
		c.clocks.pause(h)
		c.network.Pause(h, true)
	}
}

// Resume ends a pause.
func (c *Cell) Resume(hosts ...string) {
	for _, h := range hosts {
		c.clocks.resume(h) // first: what arrives late must be seen as late
		c.network.Pause(h, false)
	}
}
