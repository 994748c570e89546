package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// However many ask for the status of the cell, or for another master, its sessions are
// kept alive.
func TestKeepAlivesWaitForNoOperator(t *testing.T) {
	for method, ask := range map[string]func(context.Context, *Client) error{
		"Status": func(ctx context.Context, c *Client) error { _, err := c.cell.Status(ctx); return err },
		"Locate": func(ctx context.Context, c *Client) error { _, err := c.Transfer(ctx, "b:1"); return err },
	} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.limitStreams("a:1", manyStreams)
				cfg, r := f.recorded()
				cfg.DialTimeout, cfg.CallTimeout = time.Minute, time.Minute
				c := f.client(cfg)
				f.script(func(s seen) verb {
					if s.method == method && s.address == "a:1" {
						return hang
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				for range 2 * manyStreams {
					go func() { _ = ask(ctx, c) }()
				}
				<-ctx.Done()
				synctest.Wait()
				if n := c.Stats().KeepAlivesFailed; n > 0 || len(r.states()) > 0 {
					t.Errorf("%d KeepAlives failed, states %v", n, r.states())
				}
				f.script(nil)
				closeClient(t, c)
			})
		})
	}
}

// While no connection can be had for calls, because there are too many, what a session
// holds can be given back.
func TestGivingBackNeedsNoConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		f.mu.Lock()
		for _, address := range addresses() {
			f.down[address] = true
		}
		f.mu.Unlock()
		within, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := h.SetContents(within, nil); !errors.Is(err, api.Uncertain) {
			t.Errorf("a write: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Release(ctx); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v; held %d", err, f.state().held)
		}
		if err := h.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		closeClient(t, c)
	})
}

// What gives back does not wait, either, until an Open before it is settled that was left when
// the connection broke over which it had been done.
func TestSettlingAnOpenNeedsNoConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		l, err := lockable(t, c, 0).Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
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
		within, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := c.Open(within, "/ls/foo/x", OpenOptions{Write: true, Create: File}); !errors.Is(err, api.Uncertain) {
			t.Errorf("Open: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Release(ctx); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v; held %d", err, f.state().held)
		}
		if n := f.state().handles; n != 1 { // that of the lock
			t.Errorf("%d handles are open", n)
		}
		closeClient(t, c)
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
		f.script(func(s seen) verb {
			if s.method == "CloseHandle" {
				return hang
			}
			return nil
		})
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
			closeClient(t, c)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}
