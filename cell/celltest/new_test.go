package celltest_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Outside of a test, a cell runs in real time, and its user closes it.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	local, err := celltest.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer local.Close()
	c, err := client.New(ctx, client.Config{Servers: local.Servers(), Dialer: local.Dial, Clock: celltest.Clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
	h, err := c.Open(ctx, "/ls/local/greeting", client.OpenOptions{Write: true, Read: true, Create: client.File})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := h.SetContents(ctx, []byte("hello"), client.IfSequencer(lock.Sequencer())); err != nil {
		fmt.Println(err)
		return
	}
	contents, _, err := h.Contents(ctx)
	fmt.Printf("%s %v\n", contents, err)
	// Output:
	// hello <nil>
}

// A cell that cannot start is an error of New, and leaves nothing behind.
func TestNewThatFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c, err := celltest.New(1, func(cfg *cell.Config) { cfg.ElectionTimeout = time.Hour })
	if err == nil {
		c.Close()
		t.Fatal("a cell with an election timeout of an hour started")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
