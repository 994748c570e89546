package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Where nothing passes the way to the replica for longer than an attempt to connect
// takes, and the connections of before stay silent, another is tried again while the
// master is looked for.
func TestSilentConnectionAndLostPackets(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		w := NewWires(cfg.Dialer)
		var dark atomic.Int64 // no attempt to connect that begins before ends well
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if time.Since(f.began) < time.Duration(dark.Load()) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return w.Dial(ctx, address)
		}
		c := f.client(cfg)
		l, err := lockable(t, c, 0).Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(22 * time.Second)
		synctest.Wait()
		sent := f.heard("KeepAlive")
		due := sent[len(sent)-1].at + session.Due(c.Lease())
		dark.Store(int64(due + c.Lease()/12 + 3*time.Second/2))
		w.Silence("", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.states()) > 0 || l.Err() != nil {
			t.Errorf("states %v, and the lock: %v", r.states(), l.Err())
		}
		closeClient(t, c)
	})
}

// What gives back over a connection that has fallen silent since the last KeepAlive was
// sent has another within seconds.
func TestGivingBackOverASilentConnection(t *testing.T) {
	for what, give := range map[string]func(context.Context, *Client, *Lock) error{
		"Lock.Release": func(ctx context.Context, _ *Client, l *Lock) error { return l.Release(ctx) },
		"Handle.Close": func(ctx context.Context, _ *Client, l *Lock) error { return l.handle.Close(ctx) },
		"Client.Close": func(ctx context.Context, c *Client, _ *Lock) error { return c.Close(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c, l, w, _ := holder(t, f)
				time.Sleep(22 * time.Second)
				w.Silence("", false)
				began := time.Now()
				if err := give(t.Context(), c, l); err != nil || time.Since(began) > 4*time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if held := f.state().held; held != 0 {
					t.Errorf("the lock is held: %d", held)
				}
				closeClient(t, c)
			})
		})
	}
}

// A session that is opened over connections that have fallen silent, while no other session
// is there to find that out, is opened within seconds.
func TestNewSessionOverASilentConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		w := NewWires(cfg.Dialer)
		cfg.Dialer = w.Dial
		cell := f.dialled(cfg)
		c, err := cell.NewSession(t.Context(), cfg.Session())
		if err != nil {
			t.Fatal(err)
		}
		closeClient(t, c)
		w.Silence("", false)
		began := time.Now()
		c, err = cell.NewSession(t.Context(), cfg.Session())
		if err != nil || time.Since(began) > 4*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		closeClient(t, c)
		_ = cell.Close() // it never fails
	})
}

// A replica that takes long to connect to is not connected to twice: it may be busy with
// many who look for the master.
func TestConnectingIsNotSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cut("a:1")
		cfg := f.config()
		var now, most atomic.Int64 // attempts under way
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if address != "b:1" {
				return f.dial(ctx, address)
			}
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := New(ctx, cfg); !errors.Is(err, api.Unavailable) {
			t.Errorf("New: %v", err)
		}
		if n := most.Load(); n != 1 {
			t.Errorf("%d attempts to connect to one replica at a time", n)
		}
	})
}
