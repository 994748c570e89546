package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
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
