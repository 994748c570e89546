package chubbystorage_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	chubbystorage "github.com/chubbylock/chubby/contrib/certmagic"
)

func TestConfig(t *testing.T) {
	for path, code := range map[string]api.Code{root: api.OK, "": api.InvalidPath, "/ls/local": api.InvalidArgument, "/ls/local/a/": api.InvalidPath} {
		_, err := chubbystorage.New(nil, chubbystorage.Config{Path: path})
		wants(t, path, err, code)
	}
	_, err := chubbystorage.New(nil, chubbystorage.Config{Path: root, LockDelay: api.MaxLockDelay + 1})
	wants(t, "a long lock-delay", err, api.InvalidArgument)
}

// What the comments of certmagic.Storage ask for, and FileStorage does not do or do otherwise.
func TestContract(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.host("one")
		absent := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, fs.ErrNotExist) || api.CodeOf(err) != api.NotFound {
				t.Errorf("%s: %v; want one that is fs.ErrNotExist", what, err)
			}
		}
		all, err := s.List(w.ctx, "", true)
		absent("List of an empty storage", err)
		wants(t, "Store", s.Store(w.ctx, "a/b", []byte("1")), api.OK)

		// A key with a value is no prefix.
		_, err = s.Load(w.ctx, "a/b/c")
		absent("Load below a value", err)
		_, err = s.Stat(w.ctx, "a/b/c")
		absent("Stat below a value", err)
		_, err = s.List(w.ctx, "a/b/c", false)
		absent("List below a value", err)
		if s.Exists(w.ctx, "a/b/c") {
			t.Error("what is below a value exists")
		}
		wants(t, "Delete below a value", s.Delete(w.ctx, "a/b/c"), api.OK)
		wants(t, "Store below a value", s.Store(w.ctx, "a/b/c", nil), api.NotDirectory)
		wants(t, "Store much below a value", s.Store(w.ctx, "a/b/c", make([]byte, chunk)), api.NotDirectory)
		wants(t, "Store at a prefix", s.Store(w.ctx, "a", nil), api.IsDirectory)
		wants(t, "Store much at a prefix", s.Store(w.ctx, "a", make([]byte, chunk)), api.IsDirectory)
		_, err = s.Load(w.ctx, "a")
		wants(t, "Load a prefix", err, api.IsDirectory)

		for _, key := range []string{"", "/a", "a/", "a//b"} {
			wants(t, "Store "+key, s.Store(w.ctx, key, nil), api.InvalidArgument)
			wants(t, "Delete "+key, s.Delete(w.ctx, key), api.InvalidArgument)
		}
		for _, key := range []string{"../x", "a/../y", "./z", "A/b", "a/B"} {
			wants(t, "Store "+key, s.Store(w.ctx, key, []byte(key)), api.OK)
		}
		wants(t, "Store a long name", s.Store(w.ctx, strings.Repeat("x", api.MaxComponent+1), nil), api.InvalidPath)
		wants(t, "Store too much", s.Store(w.ctx, "much", make([]byte, chubbystorage.MaxValue+1)), api.TooLarge)

		all, err = s.List(w.ctx, "", true)
		slices.Sort(all)
		if want := []string{".", "..", "../x", "./z", "A", "A/b", "a", "a/..", "a/../y", "a/B", "a/b"}; err != nil || !slices.Equal(all, want) {
			t.Errorf("List: %q %v; want %q", all, err, want)
		}
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		if err := s.Store(ended, "a/b", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Store with a context that has ended: %v", err)
		}
	})
}

// A large value goes in and comes out; nothing of it stays behind when it is replaced or deleted.
func TestLargeValues(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.host("one")
		s.SetChunk(api.MaxContents)
		for size, then := range map[int]func() error{
			8 * api.MaxContents:     func() error { return s.Store(w.ctx, "a/b", []byte("small")) },
			2 * api.MaxContents:     func() error { return s.Delete(w.ctx, "a/b") },
			3*api.MaxContents - 100: func() error { return s.Delete(w.ctx, "a") },
		} {
			value := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			wants(t, "Store", s.Store(w.ctx, "a/b", value), api.OK)
			if got, err := s.Load(w.ctx, "a/b"); err != nil || !bytes.Equal(got, value) {
				t.Errorf("Load: %d bytes, %v", len(got), err)
			}
			if info, err := s.Stat(w.ctx, "a/b"); err != nil || info.Size != int64(size) {
				t.Errorf("Stat: %+v %v", info, err)
			}
			wants(t, "then", then(), api.OK)
			for _, path := range w.nodes(w.operator(), root) {
				if strings.Contains(path, "%") {
					t.Errorf("%s is left", path)
				}
			}
		}
	})
}

// Chunks that somebody else has removed, and files of others, are reported, and can be replaced.
func TestDamage(t *testing.T) {
	inWorld(t, func(w *world) {
		s, c := w.host("one"), w.operator()
		large := make([]byte, 2*chunk)
		for what, damage := range map[string]func() error{
			"a chunk is missing": func() error { return c.Delete(w.ctx, w.chunks(c, "k")[1]) },
			"a chunk is another": func() error { _, err := c.Put(w.ctx, w.chunks(c, "k")[1], []byte("x")); return err },
			"no head":            func() error { _, err := c.Put(w.ctx, root+"/keys/k", []byte(`+{"set":"x"`)); return err },
			"a head of nothing": func() error {
				_, err := c.Put(w.ctx, root+"/keys/k", []byte(`+{"set":"","size":1,"chunks":1}`))
				return err
			},
			"another size": func() error {
				_, err := c.Put(w.ctx, root+"/keys/k", []byte(`+{"set":"x","size":9999999999,"chunks":1}`))
				return err
			},
			"another's file": func() error { _, err := c.Put(w.ctx, root+"/keys/k", []byte("x")); return err },
			"an empty file":  func() error { _, err := c.Put(w.ctx, root+"/keys/k", nil); return err },
		} {
			wants(t, what+": Store", s.Store(w.ctx, "k", large), api.OK)
			wants(t, what, damage(), api.OK)
			_, err := s.Load(w.ctx, "k")
			wants(t, what+": Load", err, api.Corrupt)
			wants(t, what+": Store again", s.Store(w.ctx, "k", large), api.OK)
			if got, err := s.Load(w.ctx, "k"); err != nil || !bytes.Equal(got, large) {
				t.Errorf("%s: Load again: %d bytes, %v", what, len(got), err)
			}
		}
	})
}

// chunks returns the paths of the chunks of a key.
func (w *world) chunks(c *client.Client, key string) (paths []string) {
	for _, node := range w.nodes(c, path.Dir(root+"/keys/"+key)) {
		if rest, ok := strings.CutPrefix(node, root+"/keys/"+key+"%c/"); ok && strings.Contains(rest, "/") {
			paths = append(paths, node)
		}
	}
	return paths
}

// Waiting for a lock ends with the context, and calls without a master end with theirs.
func TestContexts(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.host("one")
		wants(t, "Store", s.Store(w.ctx, "k", nil), api.OK)
		wants(t, "Lock", s.Lock(w.ctx, "l"), api.OK)
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if err := s.Lock(ctx, "l"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		w.cell.Cut("one")
		ctx, cancel = context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if err := s.Store(ctx, "k", []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Store: %v", err)
		}
		w.cell.Heal("one")
		wants(t, "Store", s.Store(w.ctx, "k", []byte("y")), api.OK)
	})
}
