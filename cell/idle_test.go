package cell_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// ends records how long connections lasted until the other side closed them.
type ends struct {
	dialer func(context.Context, string) (net.Conn, error)

	mu    sync.Mutex // guards what follows
	dials map[string]int
	after []time.Duration
}

// endingConn is a connection that records its end.
type endingConn struct {
	net.Conn
	began time.Time
	once  sync.Once
	ended func(time.Duration)
}

func (c *endingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { c.ended(time.Since(c.began)) })
	}
	return n, err
}

func (e *ends) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := e.dialer(ctx, address)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dials[address]++
	return &endingConn{Conn: conn, began: time.Now(), ended: func(after time.Duration) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.after = append(e.after, after)
	}}, nil
}

// seen returns how many connections there were to an address, and how long those lasted that the other side closed.
func (e *ends) seen(address string) (dials int, after []time.Duration) {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dials[address], e.after
}

func endsFrom(c *celltest.Cell, host string) *ends {
	return &ends{dialer: c.DialFrom(host), dials: map[string]int{}}
}

// call makes a call over a connection of its own, which stays open.
func (e *ends) call(t *testing.T, ctx context.Context, replica string) error {
	t.Helper()
	return pb.Error(errOf(pb.NewCellClient(connect(t, e.dial, replica, nil).conn).Locate(ctx, &pb.LocateRequest{})))
}

// A connection without any data, or without a call, is closed after a time; one of a session that
// has only its parked KeepAlives is not.
func TestIdleConnections(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		address := c.Servers()[0]
		mute, err := c.DialFrom("mute")(ctx, address)
		noErr(t, err)
		began := time.Now()
		for buffer := make([]byte, 1<<10); err == nil; {
			_, err = mute.Read(buffer) // the replica's HTTP/2 settings
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a silent connection was closed after %v", took)
		}
		calm, busy := endsFrom(c, "calm"), endsFrom(c, "busy")
		noErr(t, calm.call(t, ctx, "r1"))
		dial(t, ctx, c, "busy", client.Config{Dialer: busy.dial, OnState: func(s client.StateChange) { t.Errorf("the session: %v", s) }})
		<-time.After(20 * time.Minute)
		const idle = 5 * time.Minute
		if _, after := calm.seen(address); len(after) != 1 || after[0] < idle || after[0] > idle+10*time.Second {
			t.Errorf("a connection without a call was closed after %v; want once, after %v", after, idle)
		}
		if dials, _ := busy.seen(c.Master() + ":7421"); dials != 2 { // the other one was for calls
			t.Errorf("a session was connected to the master %d times", dials)
		}
	})
}

// The replica closes a refused connection although its client leaves it open,
// and continues to serve an existing session.
func TestRefusedConnectionsAreClosed(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, ctx context.Context) {
		c := celltest.Start(t, 3, func(cfg *cell.Config) { cfg.MaxConnectionsPerAddress = 1 })
		dial(t, ctx, c, "host", client.Config{OnState: func(s client.StateChange) { t.Errorf("the session: %v", s) }})
		more, master := endsFrom(c, "host"), c.Master()
		if err := more.call(t, ctx, master); api.CodeOf(err) != api.Unavailable || !strings.Contains(err.Error(), "max-connections-per-address") {
			t.Errorf("a connection too many: %v", err)
		}
		<-time.After(time.Minute)
		if _, after := more.seen(master + ":7421"); len(after) == 0 || after[0] > 5*time.Second {
			t.Errorf("refused connections were closed after %v", after)
		}
		report(t, endsFrom(c, "another").call(t, ctx, master), "from elsewhere")
	})
}

// The library tries again what a replica refuses because of its rate, after its usual pauses: a program that asks for more than
// it may is served as fast as it may, and its session lives.
func TestRefusedForTheirRateIsTriedAgain(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, ctx context.Context) {
		const rate, calls = 20, 400
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.MaxCallsPerAddress = rate })
		cl := dial(t, ctx, c, "host", client.Config{NoCache: true, OnState: func(s client.StateChange) { t.Errorf("the session: %v", s) }})
		file := open(t, ctx, cl, "/ls/local/file", 0)
		began := time.Now()
		for range calls {
			must(file.Stat(ctx))(t)
		}
		lock := must(file.Acquire(ctx, api.Exclusive))(t)
		noErr(t, lock.Release(ctx))
		if took, least := time.Since(began), (calls/rate-1)*time.Second; took < least || took > 3*least {
			t.Errorf("%d calls, at %d a second, took %v", calls, rate, took)
		}
	})
}
