package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// holder returns a client that holds a lock, over connections that can be silenced.
func holder(t *testing.T, f *fake) (*Client, *Lock, *Wires, *record) {
	t.Helper()
	cfg, r := f.recorded()
	w := NewWires(cfg.Dialer)
	cfg.Dialer = w.Dial
	c := f.client(cfg)
	l := acquired(t, lockable(t, c, 0))
	return c, l, w, r
}

// A connection that falls silent, as when a firewall forgets it, costs no session, and no
// lock, at whichever moment between two KeepAlives: another one is made in time.
func TestSilentConnection(t *testing.T) {
	for _, phase := range []int{0, 100, 1000, 3000, 5000, 6900, 7100} {
		runInBubble(t, fmt.Sprint(phase), func(t *testing.T, f *fake) {
			c, l, w, r := holder(t, f)
			time.Sleep(time.Duration(20000+phase) * time.Millisecond)
			w.Silence("", false)
			if least := leastLeft(c, time.Minute); least < c.Lease()/4 {
				t.Errorf("%v were left of the lease", least)
			}
			if len(r.states()) > 0 || l.Err() != nil {
				t.Errorf("states %v, and the lock: %v", r.states(), l.Err())
			}
		})
	}
}

// leastLeft returns the least that was left of a client's lease in a time.
func leastLeft(c *Client, within time.Duration) time.Duration {
	least := c.Left()
	for end := time.Now().Add(within); time.Now().Before(end); least = min(least, c.Left()) {
		time.Sleep(100 * time.Millisecond)
	}
	return least
}

// Where the way to the replica is interrupted, so that a connection falls silent and others
// are refused for a moment, one that is refused is tried again.
func TestSilentConnectionAndRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l, w, r := holder(t, f)
		time.Sleep(22 * time.Second)
		w.Silence("", false)
		f.refuse()
		sent := f.heard("KeepAlive")
		due := sent[len(sent)-1].at + session.Due(c.Lease())
		time.Sleep(due + c.Lease()/12 + time.Second/2 - time.Since(f.began))
		f.heal()
		if least := leastLeft(c, time.Minute); least < c.Lease()/5 {
			t.Errorf("%v were left of the lease", least)
		}
		if len(r.states()) > 0 || l.Err() != nil {
			t.Errorf("states %v, and the lock: %v", r.states(), l.Err())
		}
	})
}

// A connection over which answers are late is kept while no other can be had.
func TestNoOtherConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		f.refuse()
		synctest.Wait()
		due := f.heard("KeepAlive")[0].at + 2*session.Due(c.Lease()) // of the next KeepAlive
		back := due + c.Lease()/12 + cfg.withDefaults().DialTimeout + 300*time.Millisecond
		f.script(func(s seen) verb {
			if s.method != "KeepAlive" && s.method != "Locate" {
				return nil
			}
			return func(ctx context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				if now := time.Since(f.began); now >= due-time.Second && now < back {
					_, _ = after(back-now)(ctx, func() (any, error) { return nil, nil })
				}
				return reply, err
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.states()) > 0 {
			t.Errorf("states %v", r.states())
		}
	})
}

// A connection is not given up for another because the master takes long to prove, for each
// KeepAlive, that it is the master still: over another it would take as long, and be asked
// again each time.
func TestSlowProofIsNoSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		l := acquired(t, lockable(t, c, 0))
		f.on("KeepAlive", then(func() { time.Sleep(1500 * time.Millisecond) })) // less than a client's patience with one
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := c.Stats().KeepAlivesFailed; n > 0 || len(r.states()) > 0 || l.Err() != nil {
			t.Errorf("%d KeepAlives failed, states %v, and the lock: %v", n, r.states(), l.Err())
		}
	})
}

// A replica that has gone, together with its address, while much was being sent to it,
// keeps nobody waiting until its connections are closed.
func TestForgottenReplica(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		w := NewWires(cfg.Dialer)
		cfg.Dialer = w.Dial
		cell := f.dialled(cfg)
		var gone atomic.Bool
		cell.locator.resolve = func(context.Context) ([]string, error) {
			if gone.Load() {
				return addresses()[1:], nil
			}
			return addresses(), nil
		}
		c := f.session(cell, cfg.Session())
		l := acquired(t, lockable(t, c, 0))
		time.Sleep(22 * time.Second)
		gone.Store(true)
		w.Silence("a:1", true)
		f.locked(func() { f.down["a:1"] = true })
		f.elect("b:1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.states()) > 0 || l.Err() != nil {
			t.Errorf("states %v, and the lock: %v", r.states(), l.Err())
		}
	})
}

// Wires are connections of which those that are there can fall silent: nothing passes
// them any more, either way, and nobody is told.
type Wires struct {
	dial func(context.Context, string) (net.Conn, error) // which takes a while

	mu  sync.Mutex // guards all
	all []*wire
}

type wire struct {
	net.Conn
	address string
	closed  chan struct{}
	close   sync.Once

	mu     sync.Mutex // guards what follows
	silent bool
	full   bool // and nothing more can be written
}

// NewWires returns Wires that dial connects.
func NewWires(dial func(context.Context, string) (net.Conn, error)) *Wires { return &Wires{dial: dial} }

// Dial is for Config.Dialer.
func (w *Wires) Dial(ctx context.Context, address string) (net.Conn, error) {
	time.Sleep(200 * time.Millisecond)
	conn, err := w.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	one := &wire{Conn: conn, address: address, closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	return one, nil
}

// Silence silences those to an address, or all.
func (w *Wires) Silence(address string, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if address != "" && one.address != address {
			continue
		}
		one.mu.Lock()
		one.silent, one.full = true, full
		one.mu.Unlock()
	}
}

func (w *wire) isFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
}

func (w *wire) Close() error {
	w.close.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

func (w *wire) isSilent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

func (w *wire) Read(p []byte) (int, error) {
	for {
		if n, err := w.Conn.Read(p); err != nil || !w.isSilent() {
			return n, err
		}
	}
}

func (w *wire) Write(p []byte) (int, error) {
	if w.isFull() {
		<-w.closed
		return 0, net.ErrClosed
	}
	if w.isSilent() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// However many ask for the status of the cell, or for another master, its sessions are
// kept alive.
func TestKeepAlivesWaitForNoOperator(t *testing.T) {
	for method, ask := range map[string]func(context.Context, *Client) error{
		"Status": func(ctx context.Context, c *Client) error { _, err := c.cell.Status(ctx); return err },
		"Locate": func(ctx context.Context, c *Client) error { _, err := c.Transfer(ctx, "b:1"); return err },
	} {
		runInBubble(t, method, func(t *testing.T, f *fake) {
			f.limitStreams("a:1", manyStreams)
			cfg, r := f.recorded()
			cfg.DialTimeout, cfg.CallTimeout = time.Minute, time.Minute
			c := f.client(cfg)
			f.when(func(s seen) bool { return s.method == method && s.address == "a:1" }, hang)
			ctx := bounded(t, 40*time.Second)
			for range 2 * manyStreams {
				go func() { _ = ask(ctx, c) }()
			}
			<-ctx.Done()
			synctest.Wait()
			if n := c.Stats().KeepAlivesFailed; n > 0 || len(r.states()) > 0 {
				t.Errorf("%d KeepAlives failed, states %v", n, r.states())
			}
		})
	}
}

// While no connection can be had for calls, because there are too many, what a session
// holds can be given back.
func TestGivingBackNeedsNoConnection(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		l := acquired(t, h)
		time.Sleep(3 * time.Minute)
		f.refuse()
		wants(t, "a write", second(h.SetContents(bounded(t, time.Second), nil)), api.Uncertain)
		ctx := bounded(t, 10*time.Second)
		if err := l.Release(ctx); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v; held %d", err, f.state().held)
		}
		wants(t, "Close", h.Close(ctx), nil)
	})
}

// What gives back does not wait, either, until an Open before it is settled that was left when
// the connection broke over which it had been done.
func TestSettlingAnOpenNeedsNoConnection(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		l := acquired(t, lockable(t, c, 0))
		f.script(func(s seen) verb {
			if s.method != "Open" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, address := range addresses() {
					f.down[address] = true
				}
				if list := f.conns["a:1"]; s.nth == 2 {
					_ = list[len(list)-1].Close() // that of the program was made last
				}
				return reply, err
			}
		})
		wants(t, "Open", second(c.Open(bounded(t, time.Second), "/ls/foo/x", OpenOptions{Write: true, Create: File})), api.Uncertain)
		if err := l.Release(bounded(t, 10*time.Second)); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v; held %d", err, f.state().held)
		}
		if n := f.state().handles; n != 1 { // that of the lock
			t.Errorf("%d handles are open", n)
		}
	})
}

// However many sessions have something to be settled, all of them are kept alive.
func TestKeepAlivesWaitForNoSettling(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		const sessions = 8
		f.limitStreams("a:1", sessions*3/2)
		cell, clients, handles, records := f.crowd(sessions)
		cell.dispatcher.limits = smallRooms(2)
		cell.dispatcher.cfg.CallTimeout = time.Minute
		f.on("CloseHandle", hang)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, h := range handles {
			go func() { _ = h.Close(over) }()
		}
		time.Sleep(40 * time.Second)
		f.script(nil)
		for i, c := range clients {
			if n := c.Stats().KeepAlivesFailed; n > 0 || len(records[i].states()) > 0 {
				t.Errorf("session %d: %d KeepAlives failed, states %v", i, n, records[i].states())
			}
		}
	})
}
