package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// grpcLink is a link to a replica without frames: a grpc.ClientConn that connects once.
type grpcLink struct {
	*grpc.ClientConn
	conn *onceConn
}

func openGRPC(ctx context.Context, t *target) (link, error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := grpcLink{conn: newOnceConn(conn)}
	l.ClientConn, err = grpc.NewClient("passthrough:///"+t.address, append(t.pool.grpcOptions(), grpc.WithContextDialer(l.conn.take))...)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.Connect()
	for state := l.GetState(); state != connectivity.Ready; state = l.GetState() {
		if state == connectivity.TransientFailure || !l.WaitForStateChange(ctx, state) {
			l.Close()
			l.Wait()
			return nil, fmt.Errorf("what listens there speaks neither in frames nor gRPC; is it the port for clients (%d by default), or that of Raft (%d) or HTTP (%d)? %w",
				api.DefaultClientPort, api.DefaultRaftPort, api.DefaultHTTPPort, cmp.Or(context.Cause(ctx), errHungUp))
		}
	}
	return l, nil
}

// errHungUp is why a server gave no link, although its time had not passed.
var errHungUp = errors.New("it closed the connection")

// Left implements link.
func (l grpcLink) Left() <-chan struct{} { return l.conn.left }

// Close implements link. It may take some seconds if the connection accepts no data.
func (l grpcLink) Close() {
	_ = l.ClientConn.Close() // fails only if closed already
	_ = l.conn.Close()       // if gRPC never took it
}

// Wait implements link.
func (l grpcLink) Wait() {
	<-l.conn.gone
	_ = l.ClientConn.Close() // as above
}

// onceConn is the connection for gRPC's first connect.
type onceConn struct {
	net.Conn
	taken      atomic.Bool
	left, gone chan struct{}
	leave, end func() // close left, and gone
}

func newOnceConn(conn net.Conn) *onceConn {
	c := &onceConn{Conn: conn, left: make(chan struct{}), gone: make(chan struct{})}
	c.leave, c.end = sync.OnceFunc(func() { close(c.left) }), sync.OnceFunc(func() { close(c.gone) })
	return c
}

// take is gRPC's dialer. A second request says that the server takes no more calls here, or that the
// connection is broken.
func (c *onceConn) take(context.Context, string) (net.Conn, error) {
	if c.taken.CompareAndSwap(false, true) {
		return c, nil
	}
	c.leave()
	return nil, errors.New("the replica takes no more calls over this connection")
}

// Close implements net.Conn.
func (c *onceConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	c.end()
	return err
}
