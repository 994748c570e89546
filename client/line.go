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

// line is one of the connections to a replica. It connects when it is needed.
type line struct {
	conn   *grpc.ClientConn
	chubby chubbypb.ChubbyClient
	cell   chubbypb.CellClient
	heard  atomic.Int64 // when it last connected, or a call over it was answered: a session.Instant
}

// newLine returns a connection to t.
func (p *pool) newLine(t *target) (*line, error) {
	l := &line{}
	// It does not take the place of the one in the options, as WithUnaryInterceptor would.
	options := append(p.options(t, l), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
			err := call(ctx, method, request, reply, conn, options...)
			if err == nil || isAnswer(err) {
				l.heard.Store(int64(p.cfg.Clock()))
			}
			return err
		}))
	conn, err := grpc.NewClient("passthrough:///"+t.address, options...)
	if err != nil {
		return nil, err
	}
	l.conn, l.chubby, l.cell = conn, chubbypb.NewChubbyClient(conn), chubbypb.NewCellClient(conn)
	l.heard.Store(int64(p.cfg.Clock()))
	return l, nil
}

// close breaks the connection. It may wait for a while, if that cannot be written to.
func (l *line) close() { _ = l.conn.Close() } // it fails only if it is closed already

// kept returns the connection of the sessions.
func (t *target) kept() *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own
}

// doubt is called when the answer to a KeepAlive, or to the question for the master, is late.
// If no call was answered over the connection for so long, that may have fallen silent, and
// the replica be there: a firewall that forgets a connection tells nobody, and gRPC takes
// longer than a lease to find out. So another is tried, and if the replica answers over that,
// and not over the old one, it takes the place of that. If not, the old one is kept: the
// replica may have no room for more, or only be slow to prove that it is the master, as it
// does for a KeepAlive.
func (p *pool) doubt(t *target, old *line, silent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock()
	if old.conn.GetState() != connectivity.Ready {
		return // gRPC is about to connect
	}
	if p.closed || p.targets[t.address] != t || t.trying || t.kept() != old || now.Sub(session.Instant(old.heard.Load())) < silent {
		return
	}
	next, err := p.newLine(t)
	if err != nil {
		return // there was nothing wrong with the address before
	}
	t.trying = true
	p.running.Go(func() { p.try(t, old, next, now) })
}

// try gives the sessions another connection, if the replica answers a question over that,
// and over the old one still does not answer the same. If nothing passes the way to the
// replica for longer than DialTimeout, the next question that is not answered has it tried
// again.
func (p *pool) try(t *target, old, next *line, since session.Instant) {
	ctx, cancel := context.WithTimeout(p.alive, p.cfg.DialTimeout)
	defer cancel()
	asked, answered := make(chan struct{}), false
	go func() {
		defer close(asked)
		_, err := old.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell})
		answered = err == nil || isAnswer(err)
		cancel() // nothing is wrong with it, or gRPC knows, and connects anew
	}()
	// Where it is refused or not answered it is tried again: what silenced the old one may be over in a moment.
	_, err := next.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell}, grpc.WaitForReady(true))
	if err == nil { // the old one was asked before, but this machine may be busy
		timer := time.NewTimer(hedge)
		defer timer.Stop()
		select {
		case <-asked:
		case <-timer.C:
		}
	}
	cancel()
	<-asked
	p.mu.Lock()
	t.trying = false
	superfluous := next
	if err == nil && !answered && p.targets[t.address] == t && session.Instant(old.heard.Load()) <= since {
		t.mu.Lock()
		t.own, superfluous = next, old
		t.mu.Unlock()
	}
	p.mu.Unlock()
	superfluous.close() // what is under way over it is asked again, over the other
}

// suspect is doubt of the connection over which t was asked for the master, and has not
// answered for a while. KeepAlives do not doubt it: none is sent while the master is
// looked for, and what else waits for an answer over it, such as the end of a session, has
// the master looked for.
func (p *pool) suspect(t *target) { p.doubt(t, t.kept(), doubtAfter) }

// isAnswer reports whether an error of a call is what the other end said, and not what
// gRPC made of the connection.
func isAnswer(err error) bool {
	var e *api.Error
	return errors.As(chubbypb.Error(err), &e) && e.Err == nil
}
