//go:build linux

package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A lock that is free is had at once, and one that becomes free soon, although 192
// requests of the session wait for another, as many as may.
func TestFreeLockInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		dial := func() *client.Client {
			c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		open := func(c *client.Client, path string) *client.Handle {
			h, err := c.Open(t.Context(), path, client.OpenOptions{Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		holder, c := dial(), dial()
		acquire := func(h *client.Handle, most time.Duration) *client.Lock {
			began := time.Now()
			bound, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			l, err := h.Acquire(bound, api.Exclusive)
			if d := time.Since(began); err != nil || d > most {
				t.Errorf("%s: %v after %v, want it within %v", h.Path(), err, d, most)
			}
			return l
		}
		acquire(open(holder, "/ls/local/busy"), time.Second)
		soon := acquire(open(holder, "/ls/local/soon"), time.Second)
		waiting, giveUp := context.WithCancel(t.Context())
		const waits = 192
		done := make(chan struct{}, waits)
		for range waits {
			h := open(c, "/ls/local/busy")
			go func() {
				_, _ = h.Acquire(waiting, api.Exclusive)
				done <- struct{}{}
			}()
		}
		time.Sleep(time.Second)
		acquire(open(c, "/ls/local/free"), time.Second)
		released := time.AfterFunc(time.Minute, func() { _ = soon.Release(t.Context()) })
		acquire(open(c, "/ls/local/soon"), time.Minute+api.DefaultLease)
		released.Stop()
		giveUp()
		for range waits {
			<-done
		}
		for _, c := range []*client.Client{c, holder} {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
