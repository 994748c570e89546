package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// connection is one of the two connections to a replica. It connects when it is
// first needed.
type connection struct {
	conn      *channel
	chubby    chubbypb.ChubbyClient
	cell      chubbypb.CellClient
	lastHeard atomic.Int64 // when it last connected, or a call over it was last answered: a session.Instant
}

// newConnection returns a connection to t.
func (p *pool) newConnection(t *target) *connection {
	c := &connection{}
	heard := func() { c.lastHeard.Store(int64(p.cfg.Clock())) }
	heard()
	c.conn = newChannel(p.values, p.linking(t, heard), heard)
	c.chubby, c.cell = chubbypb.NewChubbyClient(c.conn), chubbypb.NewCellClient(c.conn)
	return c
}

// close breaks the connection. Over gRPC it may take some seconds if nothing can be written
// to the connection.
func (c *connection) close() { c.conn.Close() }

// control returns the control connection, which may be replaced.
func (t *target) control() *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.controlConn
}

// checkConnection is called when the answer to a KeepAlive or to a Locate is late.
// If no call was answered over the connection for as long as silent says, the
// connection may be dead although the replica is up: a firewall that forgets a
// connection tells nobody, and pings take longer than a lease to find out. So a
// second connection is tried, and if the replica answers over the new one, and not
// over the old one, the new one replaces the old one. If not, the old one stays: the
// replica may take no more connections, or may only be slow to prove that it is the
// master, as it does for a KeepAlive.
func (p *pool) checkConnection(t *target, old *connection, silent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock()
	//mutant: if old.conn.GetState() == connectivity.Shutdown {
	if old.conn.GetState() != connectivity.Ready {
		return // it is about to connect
	}
	if p.closed || p.targets[t.address] != t || t.replacing || t.control() != old || now.Sub(session.Instant(old.lastHeard.Load())) < silent {
		return
	}
	next := p.newConnection(t)
	t.replacing = true
	p.running.Go(func() { p.tryReplacement(t, old, next, now) })
}

// tryReplacement makes next the control connection if the replica answers a Locate
// over it and does not answer the same over the old one. If neither is answered
// within DialTimeout, the old one stays, and the next late answer leads to another try.
func (p *pool) tryReplacement(t *target, old, next *connection, since session.Instant) {
	ctx, cancel := context.WithTimeout(p.life, p.cfg.DialTimeout)
	defer cancel()
	asked, answered := make(chan struct{}), false
	go func() {
		defer close(asked)
		_, err := old.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell})
		answered = err == nil || isAnswer(err)
		cancel() // the old one works, or was found not to, and reconnects
	}()
	// WaitForReady: a refused attempt to connect is repeated, as what silenced the old one may end in a moment.
	_, err := next.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell}, grpc.WaitForReady(true))
	if err == nil { // the old one was asked first, but this machine may be too busy to have read its answer
		timer := time.NewTimer(hedgeDelay)
		defer timer.Stop()
		select {
		case <-asked:
		case <-timer.C:
		}
	}
	cancel()
	<-asked
	p.mu.Lock()
	t.replacing = false
	superfluous := next
	if err == nil && !answered && p.targets[t.address] == t && session.Instant(old.lastHeard.Load()) <= since {
		t.mu.Lock()
		t.controlConn, superfluous = next, old
		t.mu.Unlock()
	}
	p.mu.Unlock()
	superfluous.close() // calls that are in flight over it are repeated over the other
}

// checkControl is checkConnection for the control connection of t, which has not
// answered a Locate for a while. It is needed besides the check that KeepAlives
// make, because no KeepAlive is sent while the locator looks for the master; and
// other calls over this connection, such as EndSession, only make the locator look.
func (p *pool) checkControl(t *target) { p.checkConnection(t, t.control(), lateAfter) }

// isAnswer reports whether an error of a call was sent by the other end, and not
// made on this side.
func isAnswer(err error) bool {
	var e *api.Error
	return errors.As(chubbypb.Error(err), &e) && e.Err == nil
}
