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

// wants fails the test unless err has that code; OK is none.
func wants(t *testing.T, what string, err error, code api.Code) {
	t.Helper()
	if err == nil && code == api.OK || err != nil && errors.Is(err, code) {
		return
	}
	t.Errorf("%s: %v; want %v", what, err, code)
}

// What is cached is got without a call, however many files there are; and it is what there is (Chubby §2.7).
func TestGetFromCache(t *testing.T) {
	inCell(t, 3, func(ctx context.Context, cell *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		const files = 200 // more than there may be idle handles
		writer, reader := dial("writer"), dial("reader")
		name := func(i int) string { return "/ls/local/dir/" + strconv.Itoa(i) }
		wants(t, "MkdirAll", writer.MkdirAll(ctx, "/ls/local/dir"), api.OK)
		for i := range files {
			if _, err := writer.Put(ctx, name(i), []byte(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
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
			_, err = reader.List(ctx, "/ls/local/absent")
			wants(t, "an absent directory", err, api.NotFound)
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
			if err := change(); err != nil {
				t.Fatal(err)
			}
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
	inCell(t, 1, func(ctx context.Context, _ *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		writer, reader, plain := dial("writer"), dial("reader"), dial("plain", func(cfg *client.Config) { cfg.NoCache = true })
		wants(t, "MkdirAll", writer.MkdirAll(ctx, "/ls/local/dir"), api.OK)
		for i, change := range []func() error{
			func() error { return nil },
			func() error { _, err := writer.Put(ctx, "/ls/local/dir/f", []byte("one")); return err },
			func() error { _, err := writer.Put(ctx, "/ls/local/dir/f", []byte("three")); return err },
			func() error { return writer.Delete(ctx, "/ls/local/dir/f") },
			func() error { return writer.MkdirAll(ctx, "/ls/local/dir/f") },
		} {
			wants(t, "a change", change(), api.OK)
			for who, c := range map[string]*client.Client{"cached": reader, "not cached": plain} {
				for range 2 { // the second by the cache
					stat, err := c.Stat(ctx, "/ls/local/dir/f")
					if got, want := fmt.Sprint(stat.Kind, stat.Size, errors.Is(err, api.NotFound)), []string{"kind 0 0 true", "file 3 false", "file 5 false", "kind 0 0 true", "directory 0 false"}[i]; got != want {
						t.Errorf("%s, change %d: %s (%v); want %s", who, i, got, err, want)
					}
				}
			}
		}
		if _, err := reader.Stat(ctx, "/ls/local/dir"); err != nil {
			t.Fatal(err)
		}
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
		l, err := writer.Acquire(ctx, "/ls/local/dir/lock")
		if err != nil {
			t.Fatal(err)
		}
		if stat, err := plain.Stat(ctx, "/ls/local/dir/lock"); err != nil || uint64(stat.Lock) != l.Token() {
			t.Errorf("without a cache the generation of the lock is %d, %v; want %d", stat.Lock, err, l.Token())
		}
		wants(t, "Release", l.Release(ctx), api.OK)
		if _, err := reader.Stat(ctx, "dir"); !errors.Is(err, api.InvalidPath) {
			t.Errorf("a path that is none: %v", err)
		}
	})
}

// What is cached is not got by those who may not read it any more.
func TestGetAfterTheRightIsGone(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, _ *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		const list, file, dir = "/ls/local/acl/readers", "/ls/local/file", "/ls/local/dir"
		operator, reader := dial("operator"), dial("reader")
		if _, err := operator.Put(ctx, list, []byte("operator\nreader\n")); err != nil {
			t.Fatal(err)
		}
		for path, create := range map[string]client.Creation{file: client.File, dir: client.Directory} {
			h, err := operator.Open(ctx, path, client.OpenOptions{Read: true, Create: create, ACL: api.ACL{Read: "readers"}})
			if err != nil {
				t.Fatal(err)
			}
			wants(t, "Close", h.Close(ctx), api.OK)
		}
		for i, contents := range []string{"operator\nreader\n", "operator\n", "operator\nreader\n"} {
			if _, err := operator.Put(ctx, list, []byte(contents)); err != nil {
				t.Fatal(err)
			}
			want := []api.Code{api.OK, api.PermissionDenied, api.OK}[i]
			for range 3 {
				_, _, err := reader.Get(ctx, file)
				wants(t, "Get", err, want)
				_, err = reader.List(ctx, dir)
				wants(t, "List", err, want)
				_, err = reader.Stat(ctx, file)
				wants(t, "Stat", err, want)
			}
		}
	})
}

// A file that is put is created with its contents, and written on conditions.
func TestPut(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, _ *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		const file = "/ls/local/file"
		for _, edit := range []func(*client.Config){func(*client.Config) {}, func(c *client.Config) { c.NoCache = true }} {
			c := dial("h1", edit)
			put := func(contents string, options ...client.WriteOption) (api.Stat, error) {
				return c.Put(ctx, file, []byte(contents), options...)
			}
			_, absent, err := c.Get(ctx, file)
			wants(t, "Get of an absent file", err, api.NotFound)
			l, err := c.Acquire(ctx, "/ls/local/lock")
			if err != nil {
				t.Fatal(err)
			}
			_, err = put("0", client.IfSequencer(l.Sequencer()))
			wants(t, "on a sequencer, absent", err, api.NotFound)
			_, err = put("0", client.IfGeneration(17))
			wants(t, "on a generation, absent", err, api.GenerationMismatch)
			_, err = put("0", client.IfGeneration(0), client.IfSequencer(l.Sequencer()))
			wants(t, "created on a sequencer", err, api.OK)
			wants(t, "deleting it", c.Delete(ctx, file), api.OK)
			_, _, err = c.Get(ctx, file)
			wants(t, "Get after refusals", err, api.NotFound)

			first, err := put("1", client.IfGeneration(absent.Content))
			wants(t, "create", err, api.OK)
			_, err = put("2", client.IfGeneration(0))
			wants(t, "create what is there", err, api.GenerationMismatch)
			if text, stat, err := c.Get(ctx, file); err != nil || string(text) != "1" || stat.Content != first.Content || stat.Instance != first.Instance || stat.Size != 1 || stat.Checksum != first.Checksum {
				t.Errorf("%q %+v %v; Put returned %+v", text, stat, err, first)
			}
			second, err := put("2", client.IfGeneration(first.Content))
			wants(t, "on the generation", err, api.OK)
			_, err = put("3", client.IfGeneration(first.Content))
			wants(t, "on an old generation", err, api.GenerationMismatch)
			_, err = put("4", client.IfSequencer(l.Sequencer()))
			wants(t, "on a sequencer", err, api.OK)
			wants(t, "Release", l.Release(ctx), api.OK)
			_, err = put("5", client.IfSequencer(l.Sequencer()))
			wants(t, "on a sequencer of before", err, api.BadSequencer)
			if text, stat, err := c.Get(ctx, file); err != nil || string(text) != "4" || stat.Content <= second.Content {
				t.Errorf("%q %+v %v", text, stat, err)
			}
			wants(t, "delete on a generation", c.Delete(ctx, file, client.IfGeneration(1)), api.InvalidArgument)
			wants(t, "delete on a sequencer of before", c.Delete(ctx, file, client.IfSequencer(l.Sequencer())), api.BadSequencer)
			wants(t, "delete", c.Delete(ctx, file), api.OK)
			wants(t, "delete again", c.Delete(ctx, file), api.NotFound)
			_, err = put("6", client.IfGeneration(second.Content))
			wants(t, "on the generation of a deleted file", err, api.GenerationMismatch)
			_, err = c.Put(ctx, "/ls/local/absent/file", nil)
			wants(t, "in an absent directory", err, api.NotFound)
			_, err = c.Put(ctx, "/ls/local/file", make([]byte, api.MaxContents+1), client.IfGeneration(7))
			wants(t, "too much", err, api.TooLarge)
			_, err = c.Put(ctx, "/ls/local", nil)
			wants(t, "a directory", err, api.IsDirectory)
			_, _, err = c.Get(ctx, "/ls/local")
			wants(t, "get a directory", err, api.IsDirectory)
			if text, _, err := func() ([]byte, api.Stat, error) { _, _ = c.Put(ctx, file, nil); return c.Get(ctx, file) }(); err != nil || text == nil || len(text) > 0 {
				t.Errorf("an empty file: %v %v", text, err)
			}
			_, err = c.List(ctx, file)
			wants(t, "list a file", err, api.NotDirectory)
			wants(t, "delete", c.Delete(ctx, file), api.OK)
			if n := c.Stats().Handles; n != 0 {
				t.Errorf("%d handles are open", n)
			}
		}
	})
}

// Nobody ever sees a file that is put, and that was absent before, without its contents.
func TestPutIsSeenWhole(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, _ *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		const file = "/ls/local/file"
		writer, reader := dial("writer"), dial("reader", func(c *client.Config) { c.NoCache = true })
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				if _, err := writer.Put(ctx, file, []byte("whole")); err != nil {
					t.Error(err)
				}
				if err := writer.Delete(ctx, file); err != nil {
					t.Error(err)
				}
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
	inCell(t, 1, func(ctx context.Context, _ *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		c, other := dial("h1"), dial("h2")
		for range 2 {
			wants(t, "MkdirAll", c.MkdirAll(ctx, "/ls/local/a/b/c"), api.OK)
		}
		wants(t, "MkdirAll of the root", c.MkdirAll(ctx, "/ls/local"), api.OK)
		for i := range 250 { // more than two pages of names
			if _, err := c.Put(ctx, fmt.Sprintf("/ls/local/a/b/%d", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			if _, err := c.Put(ctx, fmt.Sprintf("/ls/local/a/b/c/%d", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, "MkdirAll below a file", c.MkdirAll(ctx, "/ls/local/a/b/7/x/y"), api.NotDirectory)
		wants(t, "MkdirAll of a file", c.MkdirAll(ctx, "/ls/local/a/b/7"), api.NotDirectory)
		wants(t, "RemoveAll of the root", c.RemoveAll(ctx, "/ls/local"), api.InvalidArgument)
		wants(t, "RemoveAll of nothing", c.RemoveAll(ctx, "/ls/local/absent"), api.OK)
		l, err := other.Acquire(ctx, "/ls/local/a/b/100")
		if err != nil {
			t.Fatal(err)
		}
		wants(t, "RemoveAll of what is locked", c.RemoveAll(ctx, "/ls/local/a"), api.LockHeld)
		list, err := c.List(ctx, "/ls/local/a/b")
		if err != nil || len(list) != 1 || list[0].Path.Base() != "100" {
			t.Errorf("what is left: %v, %v", list, err)
		}
		wants(t, "Release", l.Release(ctx), api.OK)
		wants(t, "RemoveAll", c.RemoveAll(ctx, "/ls/local/a"), api.OK)
		wants(t, "RemoveAll again", c.RemoveAll(ctx, "/ls/local/a"), api.OK)
		_, err = c.List(ctx, "/ls/local/a")
		wants(t, "List of what was removed", err, api.NotFound)
		if n := c.Stats().Handles; n != 0 {
			t.Errorf("%d handles are open", n)
		}
	})
}

// Several make and remove the same directories at once: whoever makes them finds them, or is told that they go as
// fast as they come; and in the end there are those that were made last.
func TestMkdirAllAgainstRemoveAll(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, _ *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		ends := make(chan error, 4)
		for i := range 4 {
			c := dial("h" + strconv.Itoa(i))
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
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		c := dial("last")
		wants(t, "MkdirAll", c.MkdirAll(ctx, "/ls/local/a/b/c/d"), api.OK)
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
