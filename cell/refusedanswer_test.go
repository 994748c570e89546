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

// The answer to a transaction of many files is long, and refused with Unavailable while the calls of the connection hold too much. For the client
// that says that nothing was done: Commit says so when its context ends, and the author's cache keeps what the transaction has changed, of which the
// master does not tell its author.
func TestRefusedAnswerOfATransaction(t *testing.T) {
	for _, row := range []struct {
		name    string
		atOnce  bool // the context ends before a second attempt
		allowed []api.Code
	}{
		{"given up later", false, []api.Code{api.Uncertain}},
		{"given up at once", true, []api.Code{api.Uncertain}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				reader := dial(t, ctx, c, "reader", client.Config{})
				holder := dial(t, ctx, c, "holder", client.Config{NoCache: true})
				acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
				process, err := client.Dial(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("process"), Clock: celltest.Clock})
				if err != nil {
					t.Fatal(err)
				}
				session := func() *client.Client {
					one, err := process.NewSession(ctx, client.SessionConfig{Clock: celltest.Clock})
					if err != nil {
						t.Fatal(err)
					}
					return one
				}
				author := session()
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
				if is := contentsOf(t, ctx, holder, paths[0]); is != "old" {
					t.Fatal("it did not wait")
				}

				// Meanwhile other sessions of the process wait for a lock: each call holds 8 KiB, and the connection may hold 4 MiB.
				waiting, stop := context.WithCancel(ctx)
				var waits sync.WaitGroup
				var others []*client.Client
				for range 12 {
					one := session()
					others = append(others, one)
					h := open(t, ctx, one, "/ls/local/lock", 0)
					for range 48 {
						waits.Go(func() { _, _ = h.Acquire(waiting, api.Exclusive) })
					}
				}
				synctest.Wait()
				for contentsOf(t, ctx, holder, paths[0]) == "old" {
					select {
					case err := <-done:
						t.Fatalf("it ended before it was done: %v", err)
					default:
					}
					time.Sleep(time.Millisecond)
				}
				if !row.atOnce {
					time.Sleep(3 * time.Second)
				}
				cancel()
				err = <-done
				t.Logf("Commit: %v", err)
				fits := err == nil
				for _, code := range row.allowed {
					fits = fits || errors.Is(err, code)
				}
				if !fits {
					t.Errorf("Commit, whose doc says that nothing was done if it is neither Uncertain nor SessionExpired: %v: %v", api.CodeOf(err), err)
				}
				stop()
				waits.Wait()
				c.Heal("reader")
				if is, sees := contentsOf(t, ctx, holder, paths[0]), contentsOf(t, ctx, author, paths[0]); is != sees {
					t.Errorf("the file holds %q, and its author reads %q", is, sees)
				}
				time.Sleep(time.Minute)
				if is, sees := contentsOf(t, ctx, holder, paths[0]), contentsOf(t, ctx, author, paths[0]); is != sees {
					t.Errorf("a minute later the file holds %q, and its author reads %q", is, sees)
				}
				for _, one := range append(others, author) {
					_ = one.Close(ctx)
				}
				_ = process.Close()
			}, func(cfg *cell.Config) { cfg.ClientMemoryMiB = cell.MinClientMemoryMiB })
		})
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
