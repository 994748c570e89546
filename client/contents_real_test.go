//go:build linux

package client_test

import (
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The contents of an empty file are not nil, from the cell and from the cache.
func TestContentsOfAnEmptyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Open(t.Context(), "/ls/local/empty", client.OpenOptions{Read: true, Write: true, Create: client.File})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if contents, _, err := h.Contents(t.Context()); err != nil || contents == nil || len(contents) != 0 {
				t.Errorf("%#v, %v", contents, err)
			}
		}
		if c.Stats().Cache.Hits == 0 {
			t.Error("the second was not from the cache")
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
