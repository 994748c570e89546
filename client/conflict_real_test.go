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

// Who keeps a lock until another asks for it is told of one that has begun to wait
// at a new master before the holder was heard there.
func TestConflictDuringFailOverIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 3)
		open := func(host string) (*client.Client, *client.Handle) {
			c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.DialFrom(host), Clock: celltest.Clock, Lease: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			h, err := c.Open(t.Context(), "/ls/local/lock", client.OpenOptions{
				Read: true, Write: true, Create: client.File, Events: []api.EventKind{api.EventConflictingLock},
			})
			if err != nil {
				t.Fatal(err)
			}
			return c, h
		}
		one, holder := open("holder")
		two, waiter := open("waiter")
		l, err := holder.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		cell.Cut("holder")
		cell.FailOver()
		got := make(chan error)
		go func() {
			next, err := waiter.Acquire(t.Context(), api.Exclusive)
			if err == nil {
				err = next.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(5 * time.Second)
		cell.Heal("holder")
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var told []api.EventKind
		for e, err := range holder.Events(within) {
			if err != nil {
				t.Fatalf("%v, after %v", err, told)
			}
			if told = append(told, e.Kind); e.Kind == api.EventConflictingLock {
				if len(told) != 2 || told[0] != api.EventMasterFailedOver || e.Generation != api.Generation(l.Token()) {
					t.Errorf("told %v, of generation %d; the lock is of %d", told, e.Generation, l.Token())
				}
				break
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		for _, c := range []*client.Client{one, two} {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
