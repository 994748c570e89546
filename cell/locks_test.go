package cell_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Chubby §2.4, §2.8: if the holder of a lock became unreachable, another client gets the lock only after the holder's
// lease and the lock-delay, with a greater token. By then the holder's own context has ended.
func TestLockPassesOnAfterLeaseAndDelay(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const delay = 10 * time.Second
		held := acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "lost", client.Config{}), "/ls/local/lock", delay))
		next := open(t, ctx, dial(t, ctx, c, "next", client.Config{}), "/ls/local/lock", delay)
		time.Sleep(time.Minute) // many leases
		cut := time.Now()
		c.Cut("lost")
		var stopped time.Time
		var watching sync.WaitGroup
		watching.Go(func() {
			<-held.Context().Done()
			stopped = time.Now()
		})
		l := acquire(t, ctx, next)
		took := time.Since(cut)
		watching.Wait()
		if least, most := api.DefaultLease-session.Due(api.DefaultLease)+delay, api.DefaultLease+delay+time.Second; took < least || took > most {
			t.Errorf("the lock passed on %v after its holder was cut off; want %v to %v", took, least, most)
		}
		if !stopped.Before(time.Now()) || stopped.Before(cut) {
			t.Errorf("the old holder's context ended %v after the lock passed on", time.Since(stopped))
		}
		failIf(t, l.Token() <= held.Token(), "token %d follows %d", l.Token(), held.Token())
	})
}

// Grants follow the order of the requests (FIFO within an epoch), and clients
// that were waiting when the master failed keep their places.
func TestQueueKeepsItsOrder(t *testing.T) {
	for failOver, replicas := range map[bool]int{false: 1, true: 3} {
		t.Run(fmt.Sprint("failOver=", failOver), func(t *testing.T) {
			inCellOf(t, replicas, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				held := acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "first", client.Config{}), "/ls/local/lock", 0))
				var mu sync.Mutex
				var order []int
				var waiting sync.WaitGroup
				const n = 8
				for i := range n {
					h := open(t, ctx, dial(t, ctx, c, fmt.Sprint("waiter", i), client.Config{}), "/ls/local/lock", 0)
					queued := make(chan int, 100)
					waiting.Go(func() {
						l, err := h.Acquire(ctx, api.Exclusive, client.OnQueued(func(q client.Queued) { queued <- q.Place }))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						order = append(order, i)
						mu.Unlock()
						report(t, l.Release(ctx))
					})
					if place := <-queued; place != i+1 {
						t.Errorf("request %d is at place %d", i, place)
					}
				}
				if failOver {
					c.Kill(c.Master())
					time.Sleep(10 * time.Second) // for all to come back with their tickets
				}
				noErr(t, held.Release(ctx))
				waiting.Wait()
				if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(order, want) {
					t.Errorf("granted in the order %v", order)
				}
			})
		})
	}
}

// endsOf returns why the holdings of a lock ended; no two of them may have been at once.
func endsOf(t *testing.T, ctx context.Context, c *client.Client, path string) (list []api.EndReason) {
	t.Helper()
	h := must(c.Cell().History(ctx, path))(t)
	if a, b, found := h.Overlap(); found {
		t.Errorf("two held %s at once: %+v and %+v", path, a, b)
	}
	for _, one := range h.Holdings {
		if one.Session == 0 || one.Principal == "" || one.Generation == 0 || (one.Until == 0) != (one.End == 0) {
			t.Errorf("a holding is %+v", one)
		}
		list = append(list, one.End)
	}
	return list
}

// The cell remembers who held a lock, over fail-overs, and whose client was lost in one: a client that returned to the new master, and is
// lost after that, expires.
func TestHistoryOfALock(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path, delay = "/ls/local/lock", 3 * time.Second
		next := dial(t, ctx, c, "next", client.Config{})
		h := open(t, ctx, next, path, delay)
		noErr(t, acquire(t, ctx, h).Release(ctx))
		for _, failsOver := range []string{"never", "when it is lost", "before"} {
			lost := dial(t, ctx, c, "lost", client.Config{})
			acquire(t, ctx, open(t, ctx, lost, path, delay))
			if failsOver == "before" {
				c.Restart(c.FailOver())
				time.Sleep(30 * time.Second)
			}
			c.Cut("lost")
			if failsOver == "when it is lost" {
				c.Restart(c.FailOver())
			}
			noErr(t, acquire(t, ctx, h).Release(ctx))
			c.Heal("lost")
		}
		lock := acquire(t, ctx, h)
		want := []api.EndReason{api.ByClose, api.ByExpiry, api.ByClose, api.ByFailOver, api.ByClose, api.ByExpiry, api.ByClose, 0}
		for range 3 { // masters
			got := endsOf(t, ctx, next, path)
			stopIf(t, len(got) != len(want), "the holdings ended %v, want %v", got, want)
			for i := range want {
				failIf(t, got[i] != want[i], "the holdings ended %v, want %v", got, want)
			}
			c.Restart(c.FailOver())
		}
		report(t, lock.Err())
		fails(t, errOf(next.Cell().History(ctx, "/ls/local/none")), api.NotFound, "the history of no node")
	})
}

// A cell whose upgrade is not finished remembers nothing, and says so.
func TestHistoryNeedsItsLevel(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "by", client.Config{})
		open(t, ctx, by, "/ls/local/lock", 0)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the library tries for as long as it may, and to ask costs more than to wait
		defer cancel()
		if _, err := by.Cell().History(ctx, "/ls/local/lock"); !errors.Is(err, api.Unavailable) {
			t.Errorf("%v", err)
		}
	}, func(cfg *cell.Config) { cfg.Support(raftfsm.HistoryLevel - 1) })
}

// For how long a request has waited is shown over a fail-over.
func TestWaitingTimesSurviveFailOvers(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder := dial(t, ctx, c, "holder", client.Config{})
		acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
		waiter := dial(t, ctx, c, "waiter", client.Config{})
		h := open(t, ctx, waiter, "/ls/local/lock", 0)
		wait, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			_, _ = h.Acquire(wait, api.Exclusive)
		}()
		for range 2 {
			time.Sleep(40 * time.Second)
			c.Restart(c.FailOver())
			time.Sleep(20 * time.Second)
			locks, err := holder.Cell().Locks(ctx, "/ls/local/lock")
			stopIf(t, err != nil || len(locks) != 1 || len(locks[0].Waiters) != 1, "%+v, %v", locks, err)
			if is, shown := time.Since(began), locks[0].Waiters[0].Waiting; shown < is-2*time.Second || shown > is {
				t.Errorf("it has waited for %v, and %v is shown", is, shown)
			}
		}
		cancel()
		<-done
	})
}
