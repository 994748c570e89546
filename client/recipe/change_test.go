//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// watch ranges over the changes of a node in the background. next returns what was told since it was last called, in
// short.
func (w *world) watch(c *client.Client, path string) (next func() string, end func() error) {
	l := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Change, error] { return Watch(ctx, c, path) })
	return func() string {
		return l.Words(func(change Change) string {
			switch {
			case change.Stat.Kind == api.Directory:
				var names []string
				for _, child := range change.Children {
					names = append(names, child.Path.Base())
				}
				return change.Kind.String() + fmt.Sprint(names)
			case change.Kind != Deleted:
				return change.Kind.String() + "=" + string(change.Contents)
			}
			return change.Kind.String()
		}, " ")
	}, l.End
}

// A file is told in its versions, through deletion, creation and fail-overs, and what was missed is looked at again.
func TestWatchFile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const dir, path = "/ls/local/dir", "/ls/local/dir/file"
		writer, reader := w.Client("writer"), w.Client("reader")
		next, end := w.watch(reader, path)
		expect := func(what, want string) {
			t.Helper()
			if got := next(); got != want {
				t.Errorf("%s: %q; want %q", what, got, want)
			}
		}
		expect("not even a directory", "deleted")
		w.Mkdir(writer, dir)
		expect("a directory", "")
		w.Put(writer, path, "1")
		if got := next(); !strings.HasSuffix(got, "=1") || !strings.HasPrefix(got, "created") {
			t.Errorf("a file: %q", got)
		}
		w.Put(writer, path, "2")
		expect("a write", "modified=2")
		for i := range 20 {
			w.Put(writer, path, fmt.Sprint(i))
		}
		if got := next(); !strings.HasSuffix(got, "modified=19") {
			t.Errorf("many writes: %q", got)
		}
		w.Rm(writer, path)
		expect("deleted", "deleted")
		w.Put(writer, path, "4")
		if got := next(); !strings.HasPrefix(got, "created") || !strings.HasSuffix(got, "=4") {
			t.Errorf("created again: %q", got)
		}
		w.Succeed()
		expect("a fail-over", "restarted=4")
		w.Put(writer, path, "5")
		expect("a write under the next master", "modified=5")
		w.Cut("reader") // for less than the session lasts
		w.Put(writer, path, "6")
		w.Put(writer, path, "7")
		pass(5 * time.Second)
		w.Heal("reader")
		pass(20 * time.Second)
		if got := next(); !strings.HasSuffix(got, "=7") {
			t.Errorf("after an outage: %q", got)
		}
		w.Rm(writer, path)
		w.Rm(writer, dir)
		expect("the directory, too", "deleted")
		w.Mkdir(writer, dir)
		w.Mkdir(writer, path)
		expect("a directory of that name", "created[]")
		w.Put(writer, path+"/a", "1")
		if got := next(); !strings.HasSuffix(got, "modified[a]") {
			t.Errorf("a child: %q", got)
		}
		w.Put(writer, path+"/a", "2")
		expect("contents of a child", "modified[a]")
		w.Succeed()
		expect("a fail-over", "restarted[a]")
		w.Rm(writer, path+"/a")
		expect("no child", "modified[]")
		if err := end(); !errors.Is(err, api.Cancelled) {
			t.Errorf("given up: %v", err)
		}
		_, end = w.watch(reader, path)
		pass(time.Second)
		w.Expire(reader.Session())
		pass(time.Second)
		if err := end(); !errors.Is(err, api.SessionExpired) {
			t.Errorf("the session is over: %v", err)
		}
	})
}

// A file that was deleted and created while the loop ran is told as created, and not as modified.
func TestWatchTellsInstances(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const path = "/ls/local/file"
		writer, reader := w.Client("writer"), w.Client("reader")
		w.Put(writer, path, "1")
		var told []string
		var before api.Generation
		for change, err := range Watch(w.Ctx, reader, path) {
			w.OK(err)
			if change.Kind == Created && change.Stat.Instance <= before {
				t.Errorf("instance %d after %d", change.Stat.Instance, before)
			}
			before = change.Stat.Instance
			told = append(told, change.Kind.String()+"="+string(change.Contents))
			if len(told) == 1 {
				w.Rm(writer, path)
				h, err := writer.Open(w.Ctx, path, client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte("2")})
				w.OK(err)
				w.OK(h.Close(w.Ctx))
				pass(time.Second)
			}
			if string(change.Contents) == "2" {
				break
			}
		}
		if got := strings.Join(told, " "); got != "created=1 created=2" {
			t.Error(got)
		}
		h, err := writer.Open(w.Ctx, path+"2", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true})
		w.OK(err)
		for _, err := range Watch(w.Ctx, reader, path+"2") {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("an ephemeral file: %v", err)
			}
		}
		w.OK(h.Close(w.Ctx))
		pass(time.Second)
		if _, err := reader.Open(w.Ctx, path+"2", client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
			t.Errorf("the ephemeral file is kept: %v", err)
		}
	})
}

// A loop that is so slow that events are dropped is told so, and sees what there is.
func TestWatchSlowLoop(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const path = "/ls/local/file"
		writer, reader := w.Client("writer"), w.Client("reader")
		w.Put(writer, path, "first")
		h, err := writer.Open(w.Ctx, path, client.OpenOptions{Write: true})
		w.OK(err)
		first := true
		for change, err := range Watch(w.Ctx, reader, path) {
			w.OK(err)
			if first {
				for i := range 2 * api.MaxEventQueue {
					_, err := h.SetContents(w.Ctx, fmt.Append(nil, i))
					w.OK(err)
				}
				pass(time.Second)
				first = false
				continue
			}
			if want := fmt.Sprint(2*api.MaxEventQueue - 1); string(change.Contents) != want {
				t.Errorf("%q; want %s", change.Contents, want)
			}
			if change.Kind == Restarted {
				return
			}
			pass(time.Second)
			_, err = h.SetContents(w.Ctx, change.Contents) // so that the loop goes on to the event that tells of the loss
			w.OK(err)
		}
	})
}
