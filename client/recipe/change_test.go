//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// watch ranges over the changes of a node in the background. next returns what was told since it was last called, in
// short, once everything has come to rest.
func (w *world) watch(c *client.Client, path string) (next func() string, end func() error) {
	told := make(chan string, 1000)
	over := make(chan error, 1)
	ctx, cancel := context.WithCancel(w.ctx)
	go func() {
		for change, err := range Watch(ctx, c, path) {
			if err != nil {
				over <- err
				return
			}
			text := change.Kind.String()
			switch {
			case change.Stat.Kind == api.Directory:
				var names []string
				for _, child := range change.Children {
					names = append(names, child.Path.Base())
				}
				text += fmt.Sprint(names)
			case change.Kind != Deleted:
				text += "=" + string(change.Contents)
			}
			told <- text
		}
		over <- nil
	}()
	return func() string {
			pass(time.Second)
			var list []string
			for len(told) > 0 {
				list = append(list, <-told)
			}
			return strings.Join(list, " ")
		}, func() error {
			cancel()
			return <-over
		}
}

// A file is told in its versions, through deletion, creation and fail-overs, and what was missed is looked at again.
func TestWatchFile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const dir, path = "/ls/local/dir", "/ls/local/dir/file"
		writer, reader := w.dial("writer"), w.dial("reader")
		next, end := w.watch(reader, path)
		expect := func(what, want string) {
			t.Helper()
			if got := next(); got != want {
				t.Errorf("%s: %q; want %q", what, got, want)
			}
		}
		expect("not even a directory", "deleted")
		w.mkdir(writer, dir)
		expect("a directory", "")
		w.put(writer, path, "1")
		if got := next(); !strings.HasSuffix(got, "=1") || !strings.HasPrefix(got, "created") {
			t.Errorf("a file: %q", got)
		}
		w.put(writer, path, "2")
		expect("a write", "modified=2")
		for i := range 20 {
			w.put(writer, path, fmt.Sprint(i))
		}
		if got := next(); !strings.HasSuffix(got, "modified=19") {
			t.Errorf("many writes: %q", got)
		}
		w.rm(writer, path)
		expect("deleted", "deleted")
		w.put(writer, path, "4")
		if got := next(); !strings.HasPrefix(got, "created") || !strings.HasSuffix(got, "=4") {
			t.Errorf("created again: %q", got)
		}
		w.failOver()
		expect("a fail-over", "restarted=4")
		w.put(writer, path, "5")
		expect("a write under the next master", "modified=5")
		w.Cut("reader") // for less than the session lasts
		w.put(writer, path, "6")
		w.put(writer, path, "7")
		pass(5 * time.Second)
		w.Heal("reader")
		pass(20 * time.Second)
		if got := next(); !strings.HasSuffix(got, "=7") {
			t.Errorf("after an outage: %q", got)
		}
		w.rm(writer, path)
		w.rm(writer, dir)
		expect("the directory, too", "deleted")
		w.mkdir(writer, dir)
		w.mkdir(writer, path)
		expect("a directory of that name", "created[]")
		w.put(writer, path+"/a", "1")
		if got := next(); !strings.HasSuffix(got, "modified[a]") {
			t.Errorf("a child: %q", got)
		}
		w.put(writer, path+"/a", "2")
		expect("contents of a child", "modified[a]")
		w.failOver()
		expect("a fail-over", "restarted[a]")
		w.rm(writer, path+"/a")
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
		writer, reader := w.dial("writer"), w.dial("reader")
		w.put(writer, path, "1")
		var told []string
		var before api.Generation
		for change, err := range Watch(w.ctx, reader, path) {
			w.ok(err)
			if change.Kind == Created && change.Stat.Instance <= before {
				t.Errorf("instance %d after %d", change.Stat.Instance, before)
			}
			before = change.Stat.Instance
			told = append(told, change.Kind.String()+"="+string(change.Contents))
			if len(told) == 1 {
				w.rm(writer, path)
				h, err := writer.Open(w.ctx, path, client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte("2")})
				w.ok(err)
				w.ok(h.Close(w.ctx))
				pass(time.Second)
			}
			if string(change.Contents) == "2" {
				break
			}
		}
		if got := strings.Join(told, " "); got != "created=1 created=2" {
			t.Error(got)
		}
		h, err := writer.Open(w.ctx, path+"2", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true})
		w.ok(err)
		for _, err := range Watch(w.ctx, reader, path+"2") {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("an ephemeral file: %v", err)
			}
		}
		w.ok(h.Close(w.ctx))
		pass(time.Second)
		if _, err := reader.Open(w.ctx, path+"2", client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
			t.Errorf("the ephemeral file is kept: %v", err)
		}
	})
}

// A loop that is so slow that events are dropped is told so, and sees what there is.
func TestWatchSlowLoop(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const path = "/ls/local/file"
		writer, reader := w.dial("writer"), w.dial("reader")
		w.put(writer, path, "first")
		h, err := writer.Open(w.ctx, path, client.OpenOptions{Write: true})
		w.ok(err)
		first := true
		for change, err := range Watch(w.ctx, reader, path) {
			w.ok(err)
			if first {
				for i := range 2 * api.MaxEventQueue {
					_, err := h.SetContents(w.ctx, fmt.Append(nil, i))
					w.ok(err)
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
			_, err = h.SetContents(w.ctx, change.Contents) // so that the loop goes on to the event that tells of the loss
			w.ok(err)
		}
	})
}
