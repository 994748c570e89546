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

// connection is one of the two connections to a replica. It connects at first use.
type connection struct {
	conn      *channel
	chubby    chubbypb.ChubbyClient
	cell      chubbypb.CellClient
	lastHeard atomic.Int64 // of its last connect or answer: a session.Instant
}

func (p *pool) newConnection(t *target) *connection {
	c := &connection{}
	heard := func() { c.lastHeard.Store(int64(p.cfg.Clock())) }
	heard()
	c.conn = newChannel(p.values, p.linking(t, heard), heard)
	c.chubby, c.cell = chubbypb.NewChubbyClient(c.conn), chubbypb.NewCellClient(c.conn)
	return c
}

// close breaks the connection. Over gRPC it may take some seconds if the connection accepts no data.
func (c *connection) close() { c.conn.Close() }

func (t *target) control() *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.controlConn
}

// checkConnection is called when the answer to a KeepAlive or to a Locate is late. If the connection was
// silent for as long as silent says, it may be dead although the replica is up: a firewall forgets
// connections, and pings take longer than a lease. So it tries a second connection, which replaces the first
// if the replica answers over it alone. Otherwise the first stays: the replica may take no more connections,
// or may be slow to prove that it is the master, as for a KeepAlive.
func (p *pool) checkConnection(t *target, old *connection, silent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock()
	//mutant: if old.conn.GetState() == connectivity.Shutdown {
	if old.conn.GetState() != connectivity.Ready {
		return // about to connect
	}
	if p.closed || p.targets[t.address] != t || t.replacing || t.control() != old || now.Sub(session.Instant(old.lastHeard.Load())) < silent {
		return
	}
	next := p.newConnection(t)
	t.replacing = true
	p.running.Go(func() { p.tryReplacement(t, old, next, now) })
}

// tryReplacement makes next the control connection if the replica answers a Locate over it and not over the
// old one. Without either answer within DialTimeout, the old one stays until the next late answer.
func (p *pool) tryReplacement(t *target, old, next *connection, since session.Instant) {
	ctx, cancel := context.WithTimeout(p.life, p.cfg.DialTimeout)
	defer cancel()
	asked, answered := make(chan struct{}), false
	go func() {
		defer close(asked)
		_, err := old.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell})
		answered = err == nil || isAnswer(err)
		cancel() // the old one works, or is broken and reconnects
	}()
	// WaitForReady repeats a refused attempt to connect, as the cause of the silence may end soon.
	_, err := next.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell}, grpc.WaitForReady(true))
	if err == nil { // the old one was asked first, but this busy machine may not have read its answer
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
	superfluous.close() // the other connection repeats its pending calls
}

// checkControl is checkConnection for the control connection of t after a late Locate. KeepAlives do not
// check it during a search for the master, and other calls over it, such as EndSession, only start the
// search.
func (p *pool) checkControl(t *target) { p.checkConnection(t, t.control(), lateAfter) }

func isAnswer(err error) bool {
	var e *api.Error
	return errors.As(chubbypb.Error(err), &e) && e.Err == nil
}
