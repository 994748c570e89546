package cell_test

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// BenchmarkCached measures the cost of a read from the cache, including the
// check of the lease by the real clock; docs/performance.md has the figures.
func BenchmarkCached(b *testing.B) {
	c := celltest.Start(b, 1)
	cl, err := client.New(b.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Lease: api.MaxLease})
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close(b.Context())
	h, err := cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true, Write: true, Create: client.File})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := h.SetContents(b.Context(), make([]byte, 100)); err != nil {
		b.Fatal(err)
	}
	d, err := cl.Open(b.Context(), "/ls/local", client.OpenOptions{Read: true})
	if err != nil {
		b.Fatal(err)
	}
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
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
			after := cl.Stats().Cache
			if calls := after.Misses - before.Misses; calls > 0 {
				b.Errorf("%d calls for %d reads", calls, after.Hits-before.Hits)
			}
		})
	}
}
