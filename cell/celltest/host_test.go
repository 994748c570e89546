package celltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// host is a client on a host of its own. It records the states of its session.
type host struct {
	*client.Client
	name   string
	states chan session.State
}

func dial(t *testing.T, c *celltest.Cell, name string) *host {
	t.Helper()
	h := &host{name: name, states: make(chan session.State, 100)}
	cl, err := client.New(t.Context(), client.Config{
		Servers: c.Servers(), Dialer: c.DialFrom(name), Clock: c.ClockOf(name),
		OnState: func(change client.StateChange) { h.states <- change.State },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cl.Close(ctx) // its host may be cut off, or its session gone
	})
	h.Client = cl
	return h
}

func (h *host) open(t *testing.T, path string, delay time.Duration) *client.Handle {
	t.Helper()
	handle, err := h.Open(t.Context(), path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func acquire(t *testing.T, h *client.Handle) *client.Lock {
	t.Helper()
	lock, err := h.Acquire(t.Context(), api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func put(t *testing.T, h *client.Handle, text string) {
	t.Helper()
	if _, err := h.SetContents(t.Context(), []byte(text)); err != nil {
		t.Error(err)
	}
}

// seen returns the states so far, and clears them.
func (h *host) seen() (states []session.State) {
	for {
		select {
		case s := <-h.states:
			states = append(states, s)
		default:
			return states
		}
	}
}
