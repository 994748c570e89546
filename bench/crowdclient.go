package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
)

// The client library keeps far more for a session than a KeepAlive needs. So that one machine has
// room for a crowd beside the cell, its sessions speak the library's protocol, and no more: each
// goes on sending KeepAlives, acknowledges what it is told, and follows the master.

// sessionsOfAddress is how many sessions of a crowd come from one address of this machine: a replica bounds the
// connections of each.
const sessionsOfAddress = 10_000

// chubbyCrowd is very many sessions.
type chubbyCrowd struct {
	servers []string
	wait    sync.WaitGroup
	stop    context.CancelFunc
	replies atomic.Int64
	ended   atomic.Int64 // sessions that the cell has ended

	mu    sync.Mutex // guards what follows
	epoch uint64     // the newest of which a session has heard
	safe  int        // sessions that have been granted a lease in it
	last  time.Time  // when the newest of these was
}

// OpenCrowd implements crowdKeeper.
func (c *chubby) OpenCrowd(ctx context.Context, sessions int) (crowd, error) {
	debug.SetGCPercent(400) // it shares the processors with the cell
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &chubbyCrowd{servers: c.servers, stop: stop}
	conns := make([]*crowdConn, connectionsOf(sessions))
	for i := range conns {
		conns[i] = &crowdConn{
			crowd: k, changed: make(chan struct{}),
			dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i*sessions/len(conns)/sessionsOfAddress))}, Timeout: 2 * time.Second},
		}
		k.wait.Go(func() { conns[i].maintain(alive) })
	}
	err := inParallel(4*openAtOnce, 0, sessions, func(i int) error {
		s := &crowdSession{conn: conns[i%len(conns)]}
		if err := s.open(ctx); err != nil {
			return err
		}
		k.wait.Go(func() { s.keepAlive(alive) })
		return nil
	})
	return k, err
}

// Replies implements crowd.
func (k *chubbyCrowd) Replies() int64 { return k.replies.Load() }

// Lost implements crowd.
func (k *chubbyCrowd) Lost() int { return int(k.ended.Load()) }

// Close breaks the connections. The sessions end with their leases.
func (k *chubbyCrowd) Close() {
	k.stop()
	k.wait.Wait()
}

// safeUnder returns how many sessions have a lease of an epoch after that one, and since when.
func (k *chubbyCrowd) safeUnder(epoch uint64) (sessions int, last time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch <= epoch {
		return 0, time.Time{}
	}
	return k.safe, k.last
}

// noteSafe notes a session's first grant of an epoch.
func (k *chubbyCrowd) noteSafe(epoch uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if epoch > k.epoch {
		k.epoch, k.safe = epoch, 0
	}
	if epoch == k.epoch {
		k.safe++
		k.last = time.Now()
	}
}

// crowdConn is a connection to the master, again and again to another.
type crowdConn struct {
	crowd  *chubbyCrowd
	dialer net.Dialer

	mu      sync.Mutex // guards what follows
	link    *frames.Link
	changed chan struct{} // closed when link is set
}

// maintain keeps a link to the master until ctx ends.
func (c *crowdConn) maintain(ctx context.Context) {
	for ctx.Err() == nil {
		l := c.find(ctx)
		if l == nil {
			_ = sleep(ctx, 50*time.Millisecond)
			continue
		}
		c.mu.Lock()
		c.link = l
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		select {
		case <-l.Left():
		case <-ctx.Done():
		}
		c.mu.Lock()
		c.link = nil
		c.mu.Unlock()
		l.Close()
		l.Wait()
	}
}

// find asks the replicas which of them is the master, and returns a link to it; nil if none is.
func (c *crowdConn) find(ctx context.Context) *frames.Link {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, server := range c.crowd.servers {
		conn, err := c.dialer.DialContext(ctx, "tcp", server)
		if err != nil {
			continue
		}
		l, err := frames.Open(ctx, conn, frames.LinkConfig{Times: frames.Times{Ping: 10 * time.Second, Timeout: 5 * time.Second}, MaxReply: 2 * api.MaxMessage})
		if err != nil {
			continue
		}
		reply, err := pb.NewCellClient(l).Locate(ctx, &pb.LocateRequest{Cell: benchCell})
		if err == nil && reply.GetMaster() != "" && reply.GetMaster() == reply.GetReplica() {
			return l
		}
		l.Close()
		l.Wait()
	}
	return nil
}

// await returns the link, once there is one that takes calls.
func (c *crowdConn) await(ctx context.Context) (*frames.Link, error) {
	for {
		c.mu.Lock()
		l, changed := c.link, c.changed
		c.mu.Unlock()
		if l != nil && !hasLeft(l) {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func hasLeft(l *frames.Link) bool {
	select {
	case <-l.Left():
		return true
	default:
		return false
	}
}

// crowdSession is a session that does nothing but stay.
type crowdSession struct {
	conn  *crowdConn
	token []byte
	epoch uint64 // of the newest reply
	seen  uint64 // the newest event of that epoch
	grant uint64 // the newest grant of that epoch
}

// open opens the session. A call whose answer is lost is repeated with the same nonce.
func (s *crowdSession) open(ctx context.Context) error {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // it never fails
	request := &pb.CreateSessionRequest{Cell: benchCell, Nonce: nonce, Host: "crowd", Pid: int64(os.Getpid()), As: "bench", MayCache: true, CacheLease: true}
	for {
		l, err := s.conn.await(ctx)
		if err != nil {
			return err
		}
		reply, err := pb.NewChubbyClient(l).CreateSession(ctx, request)
		if err == nil {
			s.token, s.epoch, s.grant = reply.GetSession(), reply.GetEpoch(), reply.GetGrant().GetNumber()
			return nil
		}
		if err = pb.Error(err); !isPassing(err) {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// isPassing reports whether another attempt may succeed, perhaps at another master.
func isPassing(err error) bool {
	return errors.Is(err, api.Unavailable) || errors.Is(err, api.NotMaster) || errors.Is(err, api.Uncertain)
}

// keepAlive sends one KeepAlive after the other, until ctx ends or the cell has ended the session. After a
// failure all sessions of a connection wait for one search for the master, as those of the library do.
func (s *crowdSession) keepAlive(ctx context.Context) {
	request := &pb.KeepAliveRequest{Caller: &pb.Caller{Session: s.token}}
	for failures := 0; ; {
		l, err := s.conn.await(ctx)
		if err != nil {
			return
		}
		request.Caller.Epoch, request.Acknowledged, request.Received, request.Grant = s.epoch, s.seen, s.seen, s.grant
		if err = s.ask(l, request); err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if hasLeft(l) {
			continue
		}
		if err = pb.Error(err); errors.Is(err, api.SessionExpired) {
			if s.conn.crowd.ended.Add(1) == 1 {
				fmt.Fprintln(os.Stderr, "the first session was lost:", err)
			}
			return
		}
		if isPassing(err) {
			l.Close()
		}
		failures++
		_ = sleep(ctx, time.Duration(min(failures, 10))*50*time.Millisecond)
	}
}

// ask sends one KeepAlive, and takes note of its replies. It ends with the link.
func (s *crowdSession) ask(l *frames.Link, request *pb.KeepAliveRequest) error {
	replies, err := pb.NewChubbyClient(l).KeepAlives(context.Background(), request) // all sessions share any other context
	for err == nil {
		var reply *pb.KeepAliveReply
		if reply, err = replies.Recv(); err == nil {
			s.hear(reply)
			if !reply.GetMore() {
				return nil
			}
		}
	}
	return err
}

// hear takes note of a reply.
func (s *crowdSession) hear(reply *pb.KeepAliveReply) {
	k := s.conn.crowd
	k.replies.Add(1)
	another := reply.GetEpoch() > s.epoch
	if another {
		s.epoch, s.seen, s.grant = reply.GetEpoch(), 0, 0
	}
	for _, e := range reply.GetEvents() {
		s.seen = max(s.seen, e.GetSequence())
	}
	if g := reply.GetGrant(); g != nil {
		if s.grant == 0 {
			k.noteSafe(s.epoch)
		}
		s.grant = g.GetNumber()
	}
}
