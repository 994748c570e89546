package cell_test

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// BenchmarkCalls measures what one client's calls allocate, in the client and in a cell of one replica together:
// docs/dev/allocations.md has the table. It says little of times, since nothing is replicated.
func BenchmarkCalls(b *testing.B) {
	c := celltest.Start(b, 1)
	cl, err := client.New(b.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Lease: api.MaxLease, NoCache: true})
	noErr(b, err)
	defer cl.Close(b.Context())
	open := func(path string, o client.OpenOptions) *client.Handle {
		o.Read, o.Write, o.Create = true, true, client.File
		return must(cl.Open(b.Context(), path, o))(b)
	}
	h := open("/ls/local/f", client.OpenOptions{})
	keeper := open("/ls/local/kept", client.OpenOptions{CacheLock: true})
	lock := func(h *client.Handle) error {
		l, err := h.Acquire(b.Context(), api.Exclusive)
		if err == nil {
			err = l.Release(b.Context())
		}
		return err
	}
	contents := make([]byte, 256)
	for _, what := range []struct {
		name string
		call func() error
	}{
		{"lock+unlock", func() error { return lock(h) }},
		{"kept lock+unlock", func() error { return lock(keeper) }},
		{"write 256 B", func() error { _, err := h.SetContents(b.Context(), contents); return err }},
		{"read 256 B", func() error { _, _, err := h.Contents(b.Context()); return err }},
		{"open and close", func() error {
			h, err := cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true})
			if err == nil {
				err = h.Close(b.Context())
			}
			return err
		}},
	} {
		b.Run(what.name, func(b *testing.B) {
			for range 20 { // connections, pools and tables grow to their size
				noErr(b, what.call())
			}
			b.ReportAllocs()
			for b.Loop() {
				noErr(b, what.call())
			}
		})
	}
}

// BenchmarkCached measures the cost of a read from the cache, including the
// check of the lease by the real clock; docs/performance.md has the figures.
func BenchmarkCached(b *testing.B) {
	c := celltest.Start(b, 1)
	cl := must(client.New(b.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Lease: api.MaxLease}))(b)
	defer cl.Close(b.Context())
	h := must(cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true, Write: true, Create: client.File}))(b)
	must(h.SetContents(b.Context(), make([]byte, 100)))(b)
	d := must(cl.Open(b.Context(), "/ls/local", client.OpenOptions{Read: true}))(b)
	for name, read := range map[string]func() error{
		"contents": func() error { _, _, err := h.Contents(b.Context()); return err },
		"stat":     func() error { _, err := h.Stat(b.Context()); return err },
		"listing":  func() error { _, err := d.ReadDir(b.Context()); return err },
		"absence": func() error {
			_, err := cl.Open(b.Context(), "/ls/local/absent", client.OpenOptions{Read: true})
			if errors.Is(err, api.NotFound) {
				return nil
			}
			return err
		},
		"open and close": func() error {
			h, err := cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true})
			if err == nil {
				err = h.Close(b.Context())
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			if err := read(); err != nil { // from the cell
				b.Fatal(err)
			}
			before := cl.Stats().Cache
			b.ReportAllocs()
			for b.Loop() {
				noErr(b, read())
			}
			after := cl.Stats().Cache
			if calls := after.Misses - before.Misses; calls > 0 {
				b.Errorf("%d calls for %d reads", calls, after.Hits-before.Hits)
			}
		})
	}
}
