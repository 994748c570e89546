//go:build linux

package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A lock is not lost because its handle is bound to another, which is. A new
// master, that asks of every lock, brings that out.
func TestLockOfABoundHandleIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 3)
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		var locks []*client.Lock
		var handles []*client.Handle
		for _, name := range []string{"held", "given-up"} {
			h, err := c.Open(t.Context(), "/ls/local/"+name, client.OpenOptions{Read: true, Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
			l, err := h.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			handles, locks = append(handles, h), append(locks, l)
		}
		if err := handles[0].SetSequencer(t.Context(), locks[1].Sequencer()); err != nil {
			t.Fatal(err)
		}
		if err := locks[1].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		cell.FailOver()
		time.Sleep(30 * time.Second)
		if _, err := handles[0].Stat(t.Context()); !errors.Is(err, api.BadSequencer) {
			t.Errorf("Stat through the bound handle: %v", err)
		}
		if err := locks[0].Err(); err != nil {
			t.Errorf("the lock: %v", err)
		}
		if err := c.CheckSequencer(t.Context(), locks[0].Sequencer().String()); err != nil {
			t.Errorf("CheckSequencer: %v", err)
		}
		if err := locks[0].Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
