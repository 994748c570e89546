package cell_test

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// BenchmarkCalls measures what one client's calls allocate, in the client and in a cell of one
// replica together: docs/dev/allocations.md has the table. It says little of times, since
// nothing is replicated.
func BenchmarkCalls(b *testing.B) {
	c := celltest.Start(b, 1)
	cl, err := client.New(b.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Lease: api.MaxLease, NoCache: true})
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close(b.Context())
	open := func(path string, o client.OpenOptions) *client.Handle {
		o.Read, o.Write, o.Create = true, true, client.File
		h, err := cl.Open(b.Context(), path, o)
		if err != nil {
			b.Fatal(err)
		}
		return h
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
				if err := what.call(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := what.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
