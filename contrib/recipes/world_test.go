//go:build linux

// A cell needs more of its system than a client does.

package recipes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// world is a cell in a bubble of virtual time, and clients of it.
type world struct {
	*celltest.Cell
	t   *testing.T
	ctx context.Context // of the whole test: an hour of virtual time, so that what hangs fails
}

// inWorld runs a test with a cell of its own, of three replicas. Goroutines that the test starts end
// before it returns; clients are closed by themselves.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	inWorldOf(t, 3, test)
}

// inSmallWorld is inWorld with one replica, for a test in which the master goes on: most of what a
// virtual minute costs are heartbeats.
func inSmallWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	inWorldOf(t, 1, test)
}

func inWorldOf(t *testing.T, replicas int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		test(&world{Cell: celltest.Start(t, replicas), t: t, ctx: ctx})
	})
}

// config is that of a client on a host of that name, which Cut, Pause and Slow know.
func (w *world) config(host string) client.Config {
	return client.Config{Servers: w.Servers(), Dialer: w.DialFrom(host), Clock: w.ClockOf(host), As: host}
}

// dial opens a session on a host, which is closed at the end of the test.
func (w *world) dial(host string) *client.Client {
	w.t.Helper()
	c, err := client.New(w.ctx, w.config(host))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // it may be cut off
	})
	return c
}

// failOver kills the master, and brings it back once another serves.
func (w *world) failOver() {
	w.t.Helper()
	w.Restart(w.FailOver())
}

// mkdir makes a directory, whose parent is there.
func (w *world) mkdir(c *client.Client, path string) {
	w.t.Helper()
	h, err := c.Open(w.ctx, path, client.OpenOptions{Read: true, Create: client.Directory})
	w.ok(err)
	w.ok(h.Close(w.ctx))
}

// put writes a file, which is created if it is absent.
func (w *world) put(c *client.Client, path, contents string) {
	w.t.Helper()
	h, err := c.Open(w.ctx, path, client.OpenOptions{Write: true, Create: client.File})
	w.ok(err)
	_, err = h.SetContents(w.ctx, []byte(contents))
	w.ok(err)
	w.ok(h.Close(w.ctx))
}

// cat reads a file.
func (w *world) cat(c *client.Client, path string) string {
	w.t.Helper()
	h, err := c.Open(w.ctx, path, client.OpenOptions{Read: true, Kind: api.File})
	w.ok(err)
	text, _, err := h.Contents(w.ctx)
	w.ok(err)
	w.ok(h.Close(w.ctx))
	return string(text)
}

// rm deletes a node.
func (w *world) rm(c *client.Client, path string) {
	w.t.Helper()
	h, err := c.Open(w.ctx, path, client.OpenOptions{Write: true})
	w.ok(err)
	w.ok(h.Delete(w.ctx))
	w.ok(h.Close(w.ctx))
}

// read opens a node to read it.
func (w *world) read(c *client.Client, path string) *client.Handle {
	w.t.Helper()
	h, err := c.Open(w.ctx, path, client.OpenOptions{Read: true})
	w.ok(err)
	return h
}

// ok fails the test on an error.
func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// settle gives everybody time to do what is to be done: what runs out runs out, and its waiters have it.
func (w *world) settle() { time.Sleep(30 * time.Second) }

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// pass lets virtual time pass, as sleep does.
func pass(d time.Duration) { <-time.After(d) }

// brief returns a context of that length.
func (w *world) brief(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx, d)
}

// over waits until something has ended.
func (w *world) over(of interface{ Done() <-chan struct{} }) {
	w.t.Helper()
	select {
	case <-of.Done():
	case <-time.After(2 * (api.MaxLease + api.MinLease)):
		w.t.Error("it has not ended")
	}
}
