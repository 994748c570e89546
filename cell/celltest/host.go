package celltest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/client"
)

// closeTime bounds how long a session is waited for that is closed at the end of a test: its host may be cut off.
const closeTime = time.Second

// Run runs a test in a bubble of testing/synctest, in which time is virtual, with a cell of n replicas, as Start starts
// it. What the test begins has to end before it returns; clients of Client and Keep are closed then.
func Run(t *testing.T, n int, test func(t *testing.T, c *Cell)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, Start(t, n)) })
}

// ConfigOf returns the configuration of a client on the named host: its network is DialFrom, its clock
// ClockOf, and the host's name is its principal. Change the rest as you like.
func (c *Cell) ConfigOf(host string) client.Config {
	return client.Config{Servers: c.Servers(), Dialer: c.DialFrom(host), Clock: c.ClockOf(host), As: host}
}

// Client opens a session on the named host, with ConfigOf as the edits change it, and closes it when the test ends, for
// which it waits a second of the test's time at most. It fails the test if the session cannot be opened.
func (c *Cell) Client(host string, edits ...func(*client.Config)) *client.Client {
	c.t.Helper()
	return open(c, host, edits, client.New)
}

// Keep is Client for a Keeper, which opens another session when one was lost.
func (c *Cell) Keep(host string, edits ...func(*client.Config)) *client.Keeper {
	c.t.Helper()
	return open(c, host, edits, client.Keep)
}

// open opens a session in some way, and has it closed at the end.
func open[T interface {
	Close(ctx context.Context) error
}](c *Cell, host string, edits []func(*client.Config), how func(context.Context, client.Config) (T, error)) T {
	c.t.Helper()
	cfg := c.ConfigOf(host)
	for _, edit := range edits {
		edit(&cfg)
	}
	one, err := how(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatalf("open a session on %s: %v", host, err)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = one.Close(ctx) // its host may be cut off, or its session gone
	})
	return one
}
