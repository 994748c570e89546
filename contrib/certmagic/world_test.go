package chubbystorage_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbystorage "github.com/chubbylock/chubby/contrib/certmagic"
)

const root = "/ls/local/certmagic"

// chunk is how large the chunks are in most tests, in bytes.
const chunk = 1000

// world is a cell in memory, in virtual time, and hosts with storages.
type world struct {
	*testing.T
	cell *celltest.Cell
	ctx  context.Context //nolint:containedctx // of the test
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		t.Cleanup(cancel)
		test(&world{T: t, cell: c, ctx: ctx})
	})
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// host returns a storage of a host of that name.
func (w *world) host(name string, edits ...func(*client.Config)) *chubbystorage.Storage {
	w.Helper()
	k := w.cell.Keep(name, append([]func(*client.Config){func(cfg *client.Config) { cfg.Lease, cfg.Grace = 2*time.Second, time.Second }}, edits...)...)
	s, err := chubbystorage.New(k, chubbystorage.Config{Path: root, LockDelay: 3 * time.Second})
	if err != nil {
		w.Fatal(err)
	}
	s.SetChunk(chunk)
	return s
}

// operator returns a session beside the storages.
func (w *world) operator() *client.Client {
	w.Helper()
	return w.cell.Client("operator")
}

// wants checks the code of an error.
func wants(t testing.TB, what string, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Errorf("%s: %v; want %v", what, err, code)
	}
}

// nodes returns the names of all nodes below a directory, in files with their sizes.
func (w *world) nodes(c *client.Client, dir string) (all []string) {
	w.Helper()
	list, err := c.List(w.ctx, dir)
	if err != nil {
		w.Fatal(err)
	}
	for _, s := range list {
		all = append(all, s.Path.String())
		if s.Kind == api.Directory {
			all = append(all, w.nodes(c, s.Path.String())...)
		}
	}
	return all
}
