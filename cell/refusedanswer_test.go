package cell_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The answer to a transaction of many files is long, and refused while the calls of the connection hold too much. It was
// done all the same: Commit must not say otherwise. The author's cache must drop the old contents, as the master does not tell an author of
// its own change.
func TestRefusedAnswerOfATransaction(t *testing.T) {
	for name, givenUpAfter := range map[string]time.Duration{"given up at once": 0, "given up after more attempts": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				answerIsRefused(t, ctx, c, givenUpAfter)
			}, func(cfg *cell.Config) { cfg.ClientMemoryMiB = cell.MinClientMemoryMiB })
		})
	}
}

func answerIsRefused(t *testing.T, ctx context.Context, c *celltest.Cell, givenUpAfter time.Duration) {
	reader := dial(t, ctx, c, "reader", client.Config{})
	holder := dial(t, ctx, c, "holder", client.Config{NoCache: true})
	acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
	process, err := client.Dial(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("process"), Clock: celltest.Clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Close() }()
	session := func() *client.Client {
		one, err := process.NewSession(ctx, client.SessionConfig{Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	author := session()
	defer func() { _ = author.Close(ctx) }()
	var paths []string
	txn := author.Txn()
	for i := range api.MaxTxnSteps {
		path := fmt.Sprintf("/ls/local/%02d-%s", i, strings.Repeat("x", 240))
		paths = append(paths, path)
		putText(t, ctx, holder, path, "old")
		txn.Put(path, []byte("new"))
	}
	for range 3 {
		contentsOf(t, ctx, author, paths[0])
		contentsOf(t, ctx, reader, paths[1])
	}
	c.Cut("reader") // the transaction waits for its cache
	give, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := txn.Commit(give)
		done <- err
	}()
	synctest.Wait()

	// Meanwhile other sessions of the process wait for a lock: each call holds 8 KiB, and the connection may hold 4 MiB.
	waiting, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	for range 12 {
		one := session()
		defer func() { _ = one.Close(ctx) }()
		h := open(t, ctx, one, "/ls/local/lock", 0)
		for range 48 {
			waits.Go(func() { _, _ = h.Acquire(waiting, api.Exclusive) })
		}
	}
	synctest.Wait()
	for contentsOf(t, ctx, holder, paths[0]) == "old" {
		if len(done) > 0 {
			t.Fatalf("it ended before it was done: %v", <-done)
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(givenUpAfter)
	cancel()
	if err := <-done; err != nil && !errors.Is(err, api.Uncertain) {
		t.Errorf("Commit says that nothing was done: %v: %v", api.CodeOf(err), err)
	}
	stop()
	waits.Wait()
	c.Heal("reader")
	for _, later := range []time.Duration{0, time.Minute} {
		time.Sleep(later)
		if is, sees := contentsOf(t, ctx, holder, paths[0]), contentsOf(t, ctx, author, paths[0]); is != sees {
			t.Errorf("%v later the file holds %q, and its author reads %q", later, is, sees)
		}
	}
}

// An Open that creates a file, and whose session ends in the same entry, is answered with SessionExpired although the file was created; a Keeper
// takes that for nothing, and calls the function again.
func TestCreationIsDoneThoughItsSessionEnds(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{})
		k, err := client.Keep(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("kept"), Clock: celltest.Clock, NoCache: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.Close(ctx) }()
		var session *client.Client
		if err := k.Do(ctx, func(c *client.Client) error { session = c; return nil }); err != nil {
			t.Fatal(err)
		}
		var beside sync.WaitGroup
		beside.Go(func() { _, _ = operator.Put(ctx, "/ls/local/other", nil) }) // its entry is under way for a second
		time.Sleep(100 * time.Millisecond)
		beside.Go(func() {
			time.Sleep(100 * time.Millisecond)
			_ = c.Replica("r1").ExpireSession(ctx, session.Session())
		})
		calls := 0
		err = k.Do(ctx, func(c *client.Client) error {
			calls++
			_, err := c.Open(ctx, "/ls/local/new", client.OpenOptions{Write: true, Create: client.NewFile})
			return err
		})
		beside.Wait()
		if is := contentsOf(t, ctx, operator, "/ls/local/new"); is == "absent" {
			t.Fatal("the file was not created: the test proves nothing")
		}
		if calls != 1 {
			t.Errorf("the function was called %d times, although it had created a file the first time; the last answer was: %v", calls, err)
		}
	}, func(cfg *cell.Config) { cell.DelayEntries(cfg, time.Second) })
}
