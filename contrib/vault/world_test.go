package chubbyvault

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/hashicorp/vault/sdk/physical"
)

const root = "/ls/local/vault"

// world is a cell in memory, in virtual time, and the backends of some hosts.
type world struct {
	*testing.T
	cell     *celltest.Cell
	operator *client.Client
}

func inWorld(t *testing.T, replicas int, test func(w *world)) {
	t.Helper()
	celltest.Run(t, replicas, func(t *testing.T, c *celltest.Cell) {
		test(&world{T: t, cell: c, operator: c.Client("operator", func(cfg *client.Config) { cfg.NoCache = true })})
	})
}

func (w *world) backend(host string, edits ...func(*Config)) *Backend {
	w.Helper()
	cfg := Config{Path: root, Client: w.cell.ConfigOf(host)}
	for _, edit := range edits {
		edit(&cfg)
	}
	b, err := New(w.Context(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = b.Close(ctx) // its host may be cut off
	})
	return b
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

func (w *world) put(b *Backend, key string, value []byte) {
	w.Helper()
	if err := b.Put(w.Context(), &physical.Entry{Key: key, Value: value}); err != nil {
		w.Fatal(err)
	}
}

// want checks an entry; nil is none.
func (w *world) want(b *Backend, key string, value []byte) {
	w.Helper()
	entry, err := b.Get(w.Context(), key)
	switch {
	case err != nil:
		w.Errorf("get %q: %v", key, err)
	case entry == nil && value != nil:
		w.Errorf("there is no entry of key %q; want %d bytes", key, len(value))
	case entry != nil && (value == nil || !bytes.Equal(entry.Value, value)):
		w.Errorf("the entry of key %q has %d bytes; want others: %d (or none: %t)", key, len(entry.Value), len(value), value == nil)
	}
}

// tree lists all that is below a directory, relative to it.
func (w *world) tree(dir string) []string {
	w.Helper()
	below, err := children(w.Context(), w.operator, dir)
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, child := range below {
		all = append(all, child.Path.Base())
		if child.Kind == api.Directory {
			for _, name := range w.tree(child.Path.String()) {
				all = append(all, child.Path.Base()+"/"+name)
			}
		}
	}
	return all
}

// chunked counts the values in chunks that there are.
func (w *world) chunked() int {
	w.Helper()
	return len(slices.DeleteFunc(w.tree(root+"/chunks"), func(name string) bool { return strings.Contains(name, "/") }))
}

// large returns a value in three chunks, all of whose bytes are that one.
func large(one byte) []byte { return bytes.Repeat([]byte{one}, 2*api.MaxContents+100) }
