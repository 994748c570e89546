package chubbykv_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

const root = "/ls/local/kv"

// world is a cell in memory, in virtual time, and the stores of some hosts.
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

func (w *world) store(host string, edits ...func(*chubbykv.Config)) *chubbykv.Store {
	w.Helper()
	cfg := chubbykv.Config{Path: root, LockDelay: -1, Client: w.cell.ConfigOf(host)}
	for _, edit := range edits {
		edit(&cfg)
	}
	s, err := chubbykv.New(w.Context(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = s.Close() }) // its host may be cut off
	return s
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

func (w *world) put(s store.Store, key, value string, o *store.WriteOptions) {
	w.Helper()
	if err := s.Put(w.Context(), key, []byte(value), o); err != nil {
		w.Fatalf("put %q: %v", key, err)
	}
}

// get returns a key; nil is none.
func (w *world) get(s store.Store, key string) *store.KVPair {
	w.Helper()
	pair, err := s.Get(w.Context(), key, nil)
	if err != nil && err != store.ErrKeyNotFound { //nolint:errorlint // callers of the library compare
		w.Fatalf("get %q: %v", key, err)
	}
	return pair
}

// want checks a key; "" is none.
func (w *world) want(s store.Store, key, value string) {
	w.Helper()
	is := ""
	if pair := w.get(s, key); pair != nil {
		is = string(pair.Value)
	}
	if is != value {
		w.Errorf("key %q is %q, want %q", key, is, value)
	}
}

// list returns the keys below a directory.
func (w *world) list(s store.Store, directory string) []string {
	w.Helper()
	pairs, err := s.List(w.Context(), directory, nil)
	if err != nil && err != store.ErrKeyNotFound { //nolint:errorlint // callers of the library compare
		w.Fatalf("list %q: %v", directory, err)
	}
	return keys(pairs)
}

func keys(pairs []*store.KVPair) []string {
	list := []string{}
	for _, pair := range pairs {
		list = append(list, pair.Key)
	}
	return list
}

// nodes lists all that is below a directory of the store, relative to it.
func (w *world) nodes(dir string) []string {
	w.Helper()
	var all []string
	var visit func(dir, prefix string)
	visit = func(dir, prefix string) {
		children, err := w.operator.List(w.Context(), dir)
		if err != nil && api.CodeOf(err) != api.NotFound {
			w.Fatal(err)
		}
		for _, child := range children {
			name := prefix + child.Path.Base()
			all = append(all, name)
			if child.Kind == api.Directory {
				visit(child.Path.String(), name+"/")
			}
		}
	}
	visit(root+"/"+dir, "")
	return all
}

// wantNodes checks what there is in the cell below a directory of the store.
func (w *world) wantNodes(dir string, want ...string) {
	w.Helper()
	if is := w.nodes(dir); !slices.Equal(is, want) {
		w.Errorf("below %s: %q, want %q", dir, strings.Join(is, " "), want)
	}
}

// next receives from a channel of the library within a limit.
func next[T any](w *world, from <-chan T) T {
	w.Helper()
	select {
	case one, ok := <-from:
		if !ok {
			w.Fatal("the channel was closed")
		}
		return one
	case <-time.After(20 * time.Second):
		w.Fatal("nothing is told within 20 s")
	}
	panic("not reached")
}

// quiet checks that a channel tells nothing for a while.
func quiet[T any](w *world, from <-chan T) {
	w.Helper()
	select {
	case one, ok := <-from:
		w.Errorf("told without reason: %v, %t", one, ok)
	case <-time.After(10 * time.Second):
	}
}
