package celltest

import (
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
)

// drillLimit is how long a drill may take in virtual time.
const drillLimit = time.Minute

// Expire ends a session as if the master had heard nothing of its client for a
// whole lease, although the client is alive and reaches it: its ephemeral files
// go, its locks are free after their lock-delay. It returns when that is
// committed. The client hears of it within a round trip. It imitates, in an
// instant and without its cause, what being cut off for too long ends with; an
// application cannot tell the two apart by what it finds afterwards.
//
// The session's locks are taken although the client's lease still runs. So one
// without a lock-delay may have two holders until the client has heard of it,
// which no other trouble leads to.
func (c *Cell) Expire(id api.SessionID) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drillLimit)
	defer cancel()
	for tried := false; ; tried = true {
		err := c.Replica(c.Master()).ExpireSession(ctx, id)
		switch {
		case err == nil, tried && errors.Is(err, api.NotFound):
			return // or an attempt did it whose answer was lost
		case !errors.Is(err, api.NotMaster) && !errors.Is(err, api.Uncertain):
			c.t.Fatalf("expire session %v: %v", id, err)
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("expire session %v: %v; and %v", id, err, ctx.Err())
		case <-time.After(10 * time.Millisecond): // the cell elects
		}
	}
}

// FailOver kills the master, as Kill does, waits until another serves, and
// returns who was killed; Restart brings it back. It imitates a machine that
// crashes. Not more than a minority of the replicas can be down.
func (c *Cell) FailOver() (killed string) {
	c.t.Helper()
	killed = c.Master()
	c.Kill(killed)
	c.Master()
	return killed
}

// Transfer has the master hand over to another replica, and returns when that
// serves. Nothing is killed. It imitates an operator who does maintenance.
func (c *Cell) Transfer() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drillLimit)
	defer cancel()
	before := c.Master()
	if err := c.Replica(before).Transfer(ctx, ""); err != nil {
		c.t.Fatalf("transfer from master %s: %v", before, err)
	}
	for c.Master() == before {
		if ctx.Err() != nil {
			c.t.Fatalf("replica %s is still the master, %v after it handed over", before, drillLimit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Pause stops hosts: those of clients that were given their ClockOf, or
// replicas, by their ids. Their clocks stand still and nothing they send or are
// sent arrives, until Resume: then the clocks show at once what they would have
// shown, and everything arrives late, in its order. Connections do not break by
// that.
//
// It imitates SIGSTOP, a long garbage collection, a machine that is suspended, or
// a virtual machine that is moved. What cannot be stopped in the process of the
// test are goroutines and timers. A client does nothing in a pause that it would
// not do in an instant, because it believes its clock; but calls that are waiting
// may come to their time-outs, and what the test itself calls in a pause counts
// as called in the moment before it: a read may be answered from the cache, for
// example. A replica's Raft does come to its time-outs: a master that is paused
// knows, when it resumes, that it is not the master any more, while one that was
// really stopped finds out then.
func (c *Cell) Pause(hosts ...string) {
	for _, h := range hosts {
		c.clocks.pause(h)
		c.network.setPaused(h, true)
	}
}

// Resume ends a pause.
func (c *Cell) Resume(hosts ...string) {
	for _, h := range hosts {
		c.clocks.resume(h) // first: what arrives late is to be seen as late
		c.network.setPaused(h, false)
	}
}
