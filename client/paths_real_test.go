//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// wants checks the error of a call, or that it has no error (nil).
func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v; want %v", what, err, want)
	}
}

// What is cached is got without a call, however many files there are; and it is what there is (Chubby §2.7).
func TestGetFromCache(t *testing.T) {
	inCell(t, 3, func(ctx context.Context, cell *celltest.Cell) {
		const files = 200 // more than there may be idle handles
		writer, reader := cell.Client("writer"), cell.Client("reader")
		name := func(i int) string { return "/ls/local/dir/" + strconv.Itoa(i) }
		wants(t, "MkdirAll", writer.MkdirAll(ctx, "/ls/local/dir"), nil)
		for i := range files {
			must(t, second(writer.Put(ctx, name(i), []byte(strconv.Itoa(i)))))
		}
		readAll := func() {
			t.Helper()
			for i := range files {
				if text, stat, err := reader.Get(ctx, name(i)); err != nil || string(text) != strconv.Itoa(i) || stat.Path.Base() != strconv.Itoa(i) {
					t.Fatalf("%q %v %v", text, stat.Path, err)
				}
			}
			if list, err := reader.List(ctx, "/ls/local/dir"); err != nil || len(list) != files {
				t.Fatalf("%d children, %v", len(list), err)
			}
			_, _, err := reader.Get(ctx, "/ls/local/absent")
			wants(t, "an absent file", err, api.NotFound)
			wants(t, "an absent directory", second(reader.List(ctx, "/ls/local/absent")), api.NotFound)
		}
		readAll()
		time.Sleep(time.Second) // the answers to what was closed
		before := reader.Stats().Attempts
		readAll()
		if calls := reader.Stats().Attempts - before; calls > 1 { // the cache lease may be renewed
			t.Errorf("%d calls for what is cached", calls)
		}

		text, _, err := reader.Get(ctx, name(7))
		if err != nil {
			t.Fatal(err)
		}
		text[0] = 'x' // what is returned is the caller's
		for i, change := range []func() error{
			func() error { _, err := writer.Put(ctx, name(7), []byte("new")); return err },
			func() error { return writer.Delete(ctx, name(7)) },
			func() error { _, err := writer.Put(ctx, name(7), []byte("again")); return err },
			func() error { cell.Restart(cell.FailOver()); return nil },
			func() error { _, err := reader.Put(ctx, name(7), []byte("own")); return err },
		} {
			must(t, change())
			for range 2 { // the second by the cache
				text, _, err := reader.Get(ctx, name(7))
				if got, want := fmt.Sprintf("%s %v", text, errors.Is(err, api.NotFound)), []string{"new false", " true", "again false", "again false", "own false"}[i]; got != want {
					t.Errorf("after change %d: %q (%v); want %q", i, got, err, want)
				}
			}
		}
		if list, err := reader.List(ctx, "/ls/local/dir"); err != nil || len(list) != files {
			t.Errorf("%d children, %v", len(list), err)
		}
	})
}

// Stat tells of files and directories by their paths, and whether there are any; from the cache, and what there is.
func TestStatByPath(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		writer, reader, plain := cell.Client("writer"), cell.Client("reader"), cell.Client("plain", func(cfg *client.Config) { cfg.NoCache = true })
		wants(t, "MkdirAll", writer.MkdirAll(ctx, "/ls/local/dir"), nil)
		for i, change := range []func() error{
			func() error { return nil },
			func() error { _, err := writer.Put(ctx, "/ls/local/dir/f", []byte("one")); return err },
			func() error { _, err := writer.Put(ctx, "/ls/local/dir/f", []byte("three")); return err },
			func() error { return writer.Delete(ctx, "/ls/local/dir/f") },
			func() error { return writer.MkdirAll(ctx, "/ls/local/dir/f") },
		} {
			wants(t, "a change", change(), nil)
			for who, c := range map[string]*client.Client{"cached": reader, "not cached": plain} {
				for range 2 { // the second by the cache
					stat, err := c.Stat(ctx, "/ls/local/dir/f")
					if got, want := fmt.Sprint(stat.Kind, stat.Size, errors.Is(err, api.NotFound)), []string{"kind 0 0 true", "file 3 false", "file 5 false", "kind 0 0 true", "directory 0 false"}[i]; got != want {
						t.Errorf("%s, change %d: %s (%v); want %s", who, i, got, err, want)
					}
				}
			}
		}
		must(t, second(reader.Stat(ctx, "/ls/local/dir")))
		before := reader.Stats().Attempts
		for range 100 {
			stat, err := reader.Stat(ctx, "/ls/local/dir")
			if err != nil || stat.Kind != api.Directory || stat.Path.String() != "/ls/local/dir" {
				t.Fatalf("%+v %v", stat, err)
			}
		}
		if calls := reader.Stats().Attempts - before; calls > 2 { // the cache lease may be renewed, and the idle handle closed
			t.Errorf("%d calls for what is cached", calls)
		}
		l := ok(writer.Acquire(ctx, "/ls/local/dir/lock"))(t)
		if stat, err := plain.Stat(ctx, "/ls/local/dir/lock"); err != nil || uint64(stat.Lock) != l.Token() {
			t.Errorf("without a cache the generation of the lock is %d, %v; want %d", stat.Lock, err, l.Token())
		}
		wants(t, "Release", l.Release(ctx), nil)
		wants(t, "a path that is none", second(reader.Stat(ctx, "dir")), api.InvalidPath)
	})
}

// What is cached is not got by those who may not read it any more.
func TestGetAfterTheRightIsGone(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		const list, file, dir = "/ls/local/acl/readers", "/ls/local/file", "/ls/local/dir"
		operator, reader := cell.Client("operator"), cell.Client("reader")
		must(t, second(operator.Put(ctx, list, []byte("operator\nreader\n"))))
		for path, create := range map[string]client.Creation{file: client.File, dir: client.Directory} {
			h := ok(operator.Open(ctx, path, client.OpenOptions{Read: true, Create: create, ACL: api.ACL{Read: "readers"}}))(t)
			wants(t, "Close", h.Close(ctx), nil)
		}
		for i, contents := range []string{"operator\nreader\n", "operator\n", "operator\nreader\n"} {
			must(t, second(operator.Put(ctx, list, []byte(contents))))
			want := []error{nil, api.PermissionDenied, nil}[i]
			for range 3 {
				_, _, err := reader.Get(ctx, file)
				wants(t, "Get", err, want)
				wants(t, "List", second(reader.List(ctx, dir)), want)
				wants(t, "Stat", second(reader.Stat(ctx, file)), want)
			}
		}
	})
}

// A file that is put is created with its contents, and written on conditions.
func TestPut(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		const file = "/ls/local/file"
		for _, edit := range []func(*client.Config){func(*client.Config) {}, func(c *client.Config) { c.NoCache = true }} {
			c := cell.Client("h1", edit)
			put := func(contents string, options ...client.WriteOption) (api.Stat, error) {
				return c.Put(ctx, file, []byte(contents), options...)
			}
			_, absent, err := c.Get(ctx, file)
			wants(t, "Get of an absent file", err, api.NotFound)
			l := ok(c.Acquire(ctx, "/ls/local/lock"))(t)
			wants(t, "on a sequencer, absent", second(put("0", client.IfSequencer(l.Sequencer()))), api.NotFound)
			wants(t, "on a generation, absent", second(put("0", client.IfGeneration(17))), api.GenerationMismatch)
			wants(t, "created on a sequencer", second(put("0", client.IfGeneration(0), client.IfSequencer(l.Sequencer()))), nil)
			wants(t, "deleting it", c.Delete(ctx, file), nil)
			_, _, err = c.Get(ctx, file)
			wants(t, "Get after refusals", err, api.NotFound)

			first, err := put("1", client.IfGeneration(absent.Content))
			wants(t, "create", err, nil)
			wants(t, "create what is there", second(put("2", client.IfGeneration(0))), api.GenerationMismatch)
			if text, stat, err := c.Get(ctx, file); err != nil || string(text) != "1" || stat.Content != first.Content || stat.Instance != first.Instance || stat.Size != 1 || stat.Checksum != first.Checksum {
				t.Errorf("%q %+v %v; Put returned %+v", text, stat, err, first)
			}
			later, err := put("2", client.IfGeneration(first.Content))
			wants(t, "on the generation", err, nil)
			wants(t, "on an old generation", second(put("3", client.IfGeneration(first.Content))), api.GenerationMismatch)
			wants(t, "on a sequencer", second(put("4", client.IfSequencer(l.Sequencer()))), nil)
			wants(t, "Release", l.Release(ctx), nil)
			wants(t, "on a sequencer of before", second(put("5", client.IfSequencer(l.Sequencer()))), api.BadSequencer)
			if text, stat, err := c.Get(ctx, file); err != nil || string(text) != "4" || stat.Content <= later.Content {
				t.Errorf("%q %+v %v", text, stat, err)
			}
			wants(t, "delete on a generation", c.Delete(ctx, file, client.IfGeneration(1)), api.InvalidArgument)
			wants(t, "delete on a sequencer of before", c.Delete(ctx, file, client.IfSequencer(l.Sequencer())), api.BadSequencer)
			wants(t, "delete", c.Delete(ctx, file), nil)
			wants(t, "delete again", c.Delete(ctx, file), api.NotFound)
			wants(t, "on the generation of a deleted file", second(put("6", client.IfGeneration(later.Content))), api.GenerationMismatch)
			wants(t, "in an absent directory", second(c.Put(ctx, "/ls/local/absent/file", nil)), api.NotFound)
			wants(t, "too much", second(c.Put(ctx, "/ls/local/file", make([]byte, api.MaxContents+1), client.IfGeneration(7))), api.TooLarge)
			wants(t, "a directory", second(c.Put(ctx, "/ls/local", nil)), api.IsDirectory)
			_, _, err = c.Get(ctx, "/ls/local")
			wants(t, "get a directory", err, api.IsDirectory)
			wants(t, "put nothing", second(c.Put(ctx, file, nil)), nil)
			for range 2 { // from the cell, and from the cache
				if text, _, err := c.Get(ctx, file); err != nil || text == nil || len(text) > 0 {
					t.Errorf("an empty file: %#v %v", text, err)
				}
			}
			wants(t, "list a file", second(c.List(ctx, file)), api.NotDirectory)
			wants(t, "delete", c.Delete(ctx, file), nil)
			if n := c.Stats().Handles; n != 0 {
				t.Errorf("%d handles are open", n)
			}
		}
	})
}

// Nobody ever sees a file that is put, and that was absent before, without its contents.
func TestPutIsSeenWhole(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		const file = "/ls/local/file"
		writer, reader := cell.Client("writer"), cell.Client("reader", func(c *client.Config) { c.NoCache = true })
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				noError(t, second(writer.Put(ctx, file, []byte("whole"))))
				noError(t, writer.Delete(ctx, file))
			}
		}()
		for seen := 0; ; {
			text, _, err := reader.Get(ctx, file)
			if err == nil {
				seen++
			}
			if err == nil && string(text) != "whole" || err != nil && !errors.Is(err, api.NotFound) {
				t.Fatalf("%q %v", text, err)
			}
			select {
			case <-done:
				if seen == 0 {
					t.Error("the file was never seen")
				}
				return
			default:
			}
		}
	})
}

// Directories are made with those above them, and removed with all that is below; what is locked stays, and holds up nothing else.
func TestMkdirAllRemoveAll(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		c, other := cell.Client("h1"), cell.Client("h2")
		for range 2 {
			wants(t, "MkdirAll", c.MkdirAll(ctx, "/ls/local/a/b/c"), nil)
		}
		wants(t, "MkdirAll of the root", c.MkdirAll(ctx, "/ls/local"), nil)
		for i := range 250 { // more than two pages of names
			must(t, second(c.Put(ctx, fmt.Sprintf("/ls/local/a/b/%d", i), nil)))
		}
		for i := range 3 {
			must(t, second(c.Put(ctx, fmt.Sprintf("/ls/local/a/b/c/%d", i), nil)))
		}
		wants(t, "MkdirAll below a file", c.MkdirAll(ctx, "/ls/local/a/b/7/x/y"), api.NotDirectory)
		wants(t, "MkdirAll of a file", c.MkdirAll(ctx, "/ls/local/a/b/7"), api.NotDirectory)
		wants(t, "RemoveAll of the root", c.RemoveAll(ctx, "/ls/local"), api.InvalidArgument)
		wants(t, "RemoveAll of nothing", c.RemoveAll(ctx, "/ls/local/absent"), nil)
		l := ok(other.Acquire(ctx, "/ls/local/a/b/100"))(t)
		wants(t, "RemoveAll of what is locked", c.RemoveAll(ctx, "/ls/local/a"), api.LockHeld)
		list, err := c.List(ctx, "/ls/local/a/b")
		if err != nil || len(list) != 1 || list[0].Path.Base() != "100" {
			t.Errorf("what is left: %v, %v", list, err)
		}
		wants(t, "Release", l.Release(ctx), nil)
		wants(t, "RemoveAll", c.RemoveAll(ctx, "/ls/local/a"), nil)
		wants(t, "RemoveAll again", c.RemoveAll(ctx, "/ls/local/a"), nil)
		wants(t, "List of what was removed", second(c.List(ctx, "/ls/local/a")), api.NotFound)
		if n := c.Stats().Handles; n != 0 {
			t.Errorf("%d handles are open", n)
		}
	})
}

// Several make and remove the same directories at once: whoever makes them finds them, or is told that they go as
// fast as they come; and in the end there are those that were made last.
func TestMkdirAllAgainstRemoveAll(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		ends := make(chan error, 4)
		for i := range 4 {
			c := cell.Client("h" + strconv.Itoa(i))
			go func() {
				for range 30 {
					err := c.MkdirAll(ctx, "/ls/local/a/b/c/d")
					if i < 2 {
						err = c.RemoveAll(ctx, "/ls/local/a")
					}
					if err != nil && !errors.Is(err, api.NotFound) && !errors.Is(err, api.NotEmpty) {
						ends <- err
						return
					}
				}
				ends <- nil
			}()
		}
		for range 4 {
			noError(t, <-ends)
		}
		c := cell.Client("last")
		wants(t, "MkdirAll", c.MkdirAll(ctx, "/ls/local/a/b/c/d"), nil)
		list, err := c.List(ctx, "/ls/local/a/b/c")
		if names := slices.Collect(func(yield func(string) bool) {
			for _, s := range list {
				yield(s.Path.Base())
			}
		}); err != nil || !slices.Equal(names, []string{"d"}) {
			t.Errorf("%v, %v", names, err)
		}
	})
}
