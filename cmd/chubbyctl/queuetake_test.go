package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// Where CMD has ended with 0, and the item is lost in the moment after, queue take does not say that the item is done.
func TestItemThatIsLostWhenItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		const path = "/ls/local/films"
		q := recipe.NewQueue(c, path, recipe.QueueOptions{})
		if _, err := q.Put(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		item, err := q.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.BreakLock(t.Context(), item.Path(), "a test", false); err != nil {
			t.Fatal(err)
		}
		<-item.Context().Done()
		var told buffer
		o := &queueTakeOptions{workOptions: workOptions{
			globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told, verb: "queue take", path: api.MustParsePath(path),
		}}
		if err := o.finishItem(t.Context(), item, nil); exitCode(err) != exitLost {
			t.Errorf("exit code %d: %v", exitCode(err), err)
		}
		if n, err := q.Len(t.Context()); n != 1 || err != nil {
			t.Errorf("%d items, %v", n, err)
		}
	})
}

// An item is back in its place, and its try does not count, if CMD could not be begun; if CMD has begun, the try counts.
func TestItemWhoseCommandCannotBeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		const path = "/ls/local/films"
		q := recipe.NewQueue(c, path, recipe.QueueOptions{})
		if _, err := q.Put(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var told buffer
		o := &queueTakeOptions{attempts: 5, workOptions: workOptions{
			globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told, verb: "queue take", path: api.MustParsePath(path),
		}}
		counted := 0
		for _, one := range []struct {
			err    error // of CMD
			counts bool
		}{
			{tenure.NotBegun{Err: &supervise.NotRunError{Name: "x", Code: supervise.ExitNotFound}}, false},
			{exitWith(1), true},
			{tenure.NotBegun{Err: errors.New("no pipe")}, false},
			{nil, false}, // it did not come to CMD: an interrupt, or a file that could not be written
			{exitWith(supervise.ExitNotFound), true},
		} {
			held, err := o.takeItem(t.Context(), t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if one.err != nil {
				if got := held.finish(t.Context(), one.err); exitCode(got) != exitCode(one.err) {
					t.Errorf("after %v it ends with %v", one.err, got)
				}
			}
			o.giveUpLock(t.Context(), c, held)
			if one.counts {
				counted++
			}
			list, err := q.List(t.Context())
			if err != nil || len(list) != 1 || list[0].Attempts != counted || len(list[0].Holders) != 0 {
				t.Errorf("after %v: %+v (%v), want %d tries", one.err, list, err, counted)
			}
		}
		if told.String() != "" {
			t.Errorf("told: %s", told.String())
		}
	})
}
