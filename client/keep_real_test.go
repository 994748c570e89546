//go:build linux

package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// inKept runs a test with a Keeper of a host of that name, which is closed in the end, and a session of an operator.
func inKept(t *testing.T, replicas int, test func(ctx context.Context, cell *celltest.Cell, k *client.Keeper, operator *client.Client)) {
	t.Helper()
	inCell(t, replicas, func(ctx context.Context, cell *celltest.Cell) {
		test(ctx, cell, cell.Keep("kept"), cell.Client("operator"))
	})
}

// Calls of Do share a session, which outlives a fail-over; the first opens it.
func TestKeeperSharesASession(t *testing.T) {
	inKept(t, 3, func(ctx context.Context, cell *celltest.Cell, k *client.Keeper, operator *client.Client) {
		sessions := func() int {
			list := ok(operator.Cell().Sessions(ctx))(t)
			return len(list) - 1 // without the operator's
		}
		if n := sessions(); n != 0 {
			t.Errorf("%d sessions before the first Do", n)
		}
		both := make(chan struct{})
		var all sync.WaitGroup
		var inside sync.WaitGroup
		inside.Add(20)
		for range 20 {
			all.Go(func() {
				if err := k.Do(ctx, func(*client.Client) error {
					inside.Done()
					<-both
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		inside.Wait() // all at the same time
		if n := sessions(); n != 1 {
			t.Errorf("%d sessions of 20 calls", n)
		}
		close(both)
		all.Wait()
		cell.Restart(cell.FailOver())
		noError(t, k.Do(ctx, func(c *client.Client) error { _, err := c.Put(ctx, "/ls/local/file", nil); return err }))
		if n := sessions(); n != 1 {
			t.Errorf("%d sessions after a fail-over", n)
		}
		noError(t, k.Close(ctx))
		if n := sessions(); n != 0 {
			t.Errorf("%d sessions after Close", n)
		}
		if err := k.Do(ctx, func(*client.Client) error { t.Error("it was called"); return nil }); !errors.Is(err, client.Closed) || !errors.Is(err, api.Unavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A function whose session had ended is called once more, unless a change of it may have been made.
func TestKeeperCallsAgain(t *testing.T) {
	own := errors.New("the function's own error")
	for _, row := range []struct {
		name  string
		calls int
		f     func(ctx context.Context, c *client.Client, end func(), call int) error
		want  error
	}{
		{"nothing was done", 2, func(ctx context.Context, c *client.Client, end func(), call int) error {
			if call == 1 {
				end()
			}
			_, err := c.Put(ctx, "/ls/local/file", nil)
			return err
		}, nil},
		{"each session ends", 2, func(ctx context.Context, c *client.Client, end func(), _ int) error {
			end()
			_, err := c.Put(ctx, "/ls/local/file", nil)
			return err
		}, api.SessionExpired},
		{"it has written", 1, func(ctx context.Context, c *client.Client, end func(), _ int) error {
			if _, err := c.Put(ctx, "/ls/local/file", nil); err != nil {
				return err
			}
			end()
			_, err := c.Put(ctx, "/ls/local/file", nil)
			return err
		}, api.SessionExpired},
		{"it has had a lock and read", 2, func(ctx context.Context, c *client.Client, end func(), call int) error {
			l, err := c.Acquire(ctx, "/ls/local/lock")
			if err != nil {
				return err
			}
			if _, err := c.List(ctx, "/ls/local"); err != nil {
				return err
			}
			if call == 1 {
				end()
			}
			return l.Release(ctx)
		}, nil},
		{"another error", 1, func(_ context.Context, _ *client.Client, end func(), _ int) error { end(); return own }, own},
		{"an error of another session", 1, func(context.Context, *client.Client, func(), int) error {
			return &api.Error{Code: api.SessionExpired}
		}, api.SessionExpired},
	} {
		t.Run(row.name, func(t *testing.T) {
			inKept(t, 1, func(ctx context.Context, cell *celltest.Cell, k *client.Keeper, operator *client.Client) {
				for _, path := range []string{"/ls/local/lock", "/ls/local/other"} {
					must(t, second(operator.Put(ctx, path, nil)))
				}
				var seen []api.SessionID
				err := k.Do(ctx, func(c *client.Client) error {
					seen = append(seen, c.Session())
					return row.f(ctx, c, func() {
						cell.Expire(c.Session())
						<-c.Done() // else a call may be cut off on its way by the news, and nobody knows what it has done
					}, len(seen))
				})
				if len(seen) != row.calls || len(seen) == 2 && seen[0] == seen[1] {
					t.Errorf("called in the sessions %v", seen)
				}
				if row.want == nil && err != nil || !errors.Is(err, row.want) {
					t.Errorf("%v; want %v", err, row.want)
				}
			})
		})
	}
}

// A session that an operator has ended is not closed before the program has released the lock that it had: nobody else
// has it before. The next call has another session meanwhile.
func TestKeeperWaitsForTheReleaseOfLostLocks(t *testing.T) {
	inKept(t, 3, func(ctx context.Context, _ *celltest.Cell, k *client.Keeper, operator *client.Client) {
		var l *client.Lock
		var id api.SessionID
		take := func(c *client.Client) (err error) {
			id = c.Session()
			l, err = c.Acquire(ctx, lockPath)
			return err
		}
		must(t, k.Do(ctx, take))
		must(t, operator.EndSession(ctx, id, "a test"))
		<-l.Context().Done()
		was := id
		for range 3 {
			if err := k.Do(ctx, func(c *client.Client) error { id = c.Session(); return nil }); err != nil || id == was {
				t.Errorf("the next call: session %v after %v, %v", id, was, err)
			}
		}
		brief, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		wants(t, "another has the lock, whose work has not stopped", second(operator.Acquire(brief, lockPath)), api.DeadlineExceeded)
		wants(t, "Release", l.Release(ctx), api.SessionExpired)
		brief, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		wants(t, "after the release", second(operator.Acquire(brief, lockPath)), nil)
	})
}

// Of a session that was abandoned the cell is not told: others have its lock when its lease has run out, also if an operator
// had ended it; and the next call has another session at once.
func TestKeeperAbandons(t *testing.T) {
	for _, byOperator := range []bool{false, true} {
		inKept(t, 1, func(ctx context.Context, _ *celltest.Cell, k *client.Keeper, operator *client.Client) {
			for range 10 { // more than may be lost and be in use
				var l *client.Lock
				var id api.SessionID
				if err := k.Do(ctx, func(c *client.Client) (err error) {
					id = c.Session()
					l, err = c.Acquire(ctx, lockPath, client.LockDelay(0))
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if byOperator {
					must(t, operator.EndSession(ctx, id, "a test"))
					<-l.Context().Done()
				}
				began := time.Now()
				k.Abandon(ctx)
				if l.Err() == nil || !byOperator && !errors.Is(l.Err(), client.Closed) {
					t.Errorf("the lock of an abandoned session: %v", l.Err())
				}
				if err := k.Do(ctx, func(c *client.Client) error {
					if c.Session() == id {
						t.Error("the next call has the session that was abandoned")
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
				if next, err := operator.Acquire(ctx, lockPath, client.LockDelay(0)); err != nil {
					t.Error(err)
				} else if err := next.Release(ctx); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < api.DefaultLease*5/12 || took > api.DefaultLease+3*time.Second {
					t.Errorf("by an operator %t: another had the lock after %v", byOperator, took)
				}
			}
			k.Abandon(ctx)
			k.Abandon(ctx) // of nothing
		})
	}
}

// A program that never releases the locks that it loses gets no session without end.
func TestKeeperBoundsLostSessions(t *testing.T) {
	inKept(t, 1, func(ctx context.Context, cell *celltest.Cell, k *client.Keeper, operator *client.Client) {
		var locks []*client.Lock
		var err error
		for len(locks) < 100 {
			var l *client.Lock
			if err = k.Do(ctx, func(c *client.Client) (err error) {
				brief, cancel := context.WithTimeout(ctx, 10*time.Minute)
				defer cancel()
				l, err = c.Acquire(brief, lockPath)
				return err
			}); err != nil {
				break
			}
			locks = append(locks, l)
			_ = k.Do(ctx, func(c *client.Client) error { return operator.EndSession(ctx, c.Session(), "a test") })
			<-l.Context().Done()
		}
		if len(locks) != 8 || !errors.Is(err, api.QuotaExceeded) {
			t.Errorf("after %d lost sessions: %v", len(locks), err)
		}
		for _, l := range locks {
			_ = l.Release(ctx)
		}
		wants(t, "after the releases", k.Do(ctx, func(*client.Client) error { return nil }), nil)
		for range 20 { // one that panics uses no session any more
			func() {
				defer func() { _ = recover() }()
				_ = k.Do(ctx, func(c *client.Client) error {
					cell.Expire(c.Session())
					<-c.Done()
					panic("a test")
				})
			}()
		}
		wants(t, "after panics", k.Do(ctx, func(*client.Client) error { return nil }), nil)
	})
}

// Without a cell, Do waits as long as its context lasts; one that gives up leaves the search to the next; and Close ends all.
func TestKeeperWithoutACell(t *testing.T) {
	inKept(t, 1, func(ctx context.Context, cell *celltest.Cell, k *client.Keeper, _ *client.Client) {
		cell.Cut("kept")
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ends := make(chan error, 2)
		for _, ctx := range []context.Context{brief, ctx} {
			go func() { ends <- k.Do(ctx, func(*client.Client) error { return nil }) }()
			time.Sleep(time.Millisecond) // the first searches, the second waits for it
		}
		wants(t, "until its deadline", <-ends, context.DeadlineExceeded)
		cell.Heal("kept")
		wants(t, "the next", <-ends, nil)
		cell.Cut("kept")
		time.Sleep(2 * time.Minute) // the session is lost
		go func() { ends <- k.Do(ctx, func(*client.Client) error { return nil }) }()
		time.Sleep(time.Second)
		began := time.Now()
		if err := k.Close(ctx); err != nil || time.Since(began) > client.CleanupTime {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
		wants(t, "a call that waited", <-ends, client.Closed)
		wants(t, "a Config that is invalid", second(client.Keep(ctx, client.Config{Lease: 1})), api.InvalidArgument)
	})
}
