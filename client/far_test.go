package client

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// far has an address answer the question for the master late.
func (f *fake) far(address string, d time.Duration) {
	f.script(func(s seen) verb {
		if s.method != "Locate" || s.address != address {
			return nil
		}
		return after(d)
	})
}

// A master that takes longer to answer than a round waits for the last ones, because it is
// further away than the others, is found.
func TestFarMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.far("a:1", 400*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err := New(ctx, f.config())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(f.began); took > time.Second {
			t.Errorf("New took %v", took)
		}
		closeClient(t, c)
	})
}

// A new master that is busy, and so takes longer to connect to and to answer than the others,
// is found in time, and not connected to twice: it may be busy with many who look for it.
func TestBusyMaster(t *testing.T) {
	for what, slow := range map[string]struct {
		connect, answer time.Duration
		connections     int64
	}{
		"to answer":  {0, 700 * time.Millisecond, 0},
		"to connect": {900 * time.Millisecond, 400 * time.Millisecond, 1},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				cfg, r := f.recorded()
				var made atomic.Int64
				cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
					if address == "b:1" {
						made.Add(1)
						time.Sleep(slow.connect)
					}
					return f.dial(ctx, address)
				}
				c := f.client(cfg)
				time.Sleep(2 * time.Minute) // connections without calls are gone
				if slow.connections == 0 {
					c.cell.locator.askReplica(t.Context(), "b:1")
					time.Sleep(5 * time.Second)
				}
				made.Store(0)
				f.far("b:1", slow.answer)
				f.elect("b:1")
				f.cut("a:1")
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(r.states()) > 0 || c.Epoch() != 6 {
					t.Errorf("states %v, epoch %v; %s", r.states(), c.Epoch(), c.cell.locator.diagnosis())
				}
				if n := made.Load(); n != slow.connections && !*withoutFrames { // else there is one more, for the question
					t.Errorf("%d connections", n)
				}
				closeClient(t, c)
			})
		})
	}
}

// A server that is configured twice is asked once, and not waited for twice.
func TestServerConfiguredTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.far("b:1", 100*time.Millisecond)
		f.mu.Lock()
		f.master = ""
		f.mu.Unlock()
		time.AfterFunc(time.Second, func() { f.elect("b:1") })
		cfg := f.config()
		cfg.Servers = []string{"b:1", "b:1", "b:1"}
		c := f.client(cfg)
		if took := time.Since(f.began); took > 1900*time.Millisecond {
			t.Errorf("New took %v", took)
		}
		closeClient(t, c)
	})
}
