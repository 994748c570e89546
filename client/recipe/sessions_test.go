//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Files that are watched over a Keeper share its session with the rest of the program, have the next when it is lost, and
// leave it open when they are closed.
func TestWatchConfigOverAKeeper(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		writer := w.dial("writer")
		k, err := client.Keep(w.ctx, w.config("h1"))
		w.ok(err)
		defer func() { w.ok(k.Close(context.Background())) }()
		mine := func() (id api.SessionID) {
			t.Helper()
			w.ok(k.Do(w.ctx, func(c *client.Client) error { id = c.Session(); return nil }))
			list, err := writer.Cell().Sessions(w.ctx)
			if err != nil || len(list) != 2 {
				t.Errorf("%d sessions, %v; want the writer's and one", len(list), err)
			}
			return id
		}
		var files []*ConfigFile[int]
		for i := range 3 {
			path := fmt.Sprintf("/ls/local/limit%d", i)
			w.put(writer, path, fmt.Sprint(i))
			f, err := WatchConfig(w.ctx, k, path, number, ConfigFileOptions[int]{})
			w.ok(err)
			files = append(files, f)
		}
		for i, f := range files {
			w.is(f, i, true)
		}
		first := mine()
		w.Expire(first)
		w.settle()
		for i, f := range files {
			w.put(writer, fmt.Sprintf("/ls/local/limit%d", i), fmt.Sprint(10+i))
			w.is(f, 10+i, true)
		}
		if mine() == first {
			t.Error("the session is the one that was lost")
		}
		for _, f := range files {
			f.Close()
		}
		second := mine()
		pass(time.Second)
		if mine() != second {
			t.Error("Close of the files has closed the session")
		}

		// An error of a function ends Renew, and not the session; the end of the Keeper ends it, too.
		own := errors.New("the function's own error")
		if err := k.Renew(w.ctx, func(context.Context, *client.Client) error { return own }); !errors.Is(err, own) || mine() != second {
			t.Errorf("Renew: %v", err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- k.Renew(w.ctx, func(ctx context.Context, _ *client.Client) error { <-ctx.Done(); return nil })
		}()
		pass(time.Second)
		w.ok(k.Close(w.ctx))
		if err := <-ended; !errors.Is(err, client.Closed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
