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
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// Chubby §2.4, §2.8: if the holder of a lock became unreachable, another client
// gets the lock only after the holder's lease and the lock-delay, with a
// greater token. By then the holder's own context has ended.
func TestLockPassesOnAfterLeaseAndDelay(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
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
		if l.Token() <= held.Token() {
			t.Errorf("token %d follows %d", l.Token(), held.Token())
		}
	})
}

// Grants follow the order of the requests (FIFO within an epoch), and clients
// that were waiting when the master failed keep their places.
func TestQueueKeepsItsOrder(t *testing.T) {
	for _, failOver := range []bool{false, true} {
		t.Run(fmt.Sprint("failOver=", failOver), func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
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
						if err := l.Release(ctx); err != nil {
							t.Error(err)
						}
					})
					if place := <-queued; place != i+1 {
						t.Errorf("request %d is at place %d", i, place)
					}
				}
				if failOver {
					c.Kill(c.Master())
					time.Sleep(10 * time.Second) // for all to come back with their tickets
				}
				if err := held.Release(ctx); err != nil {
					t.Fatal(err)
				}
				waiting.Wait()
				if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(order, want) {
					t.Errorf("granted in the order %v", order)
				}
			})
		})
	}
}

// Readers share a lock, and no reader overtakes an earlier writer.
func TestReadersAndWriters(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		handles := make([]*client.Handle, 5)
		for i := range handles {
			handles[i] = open(t, ctx, dial(t, ctx, c, fmt.Sprint("h", i), client.Config{}), "/ls/local/lock", 0)
		}
		shared := func(i int) *client.Lock {
			l, err := handles[i].Acquire(ctx, api.Shared)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		a, b := shared(0), shared(1)
		if a.Token() != b.Token() {
			t.Errorf("two readers that share the lock have tokens %d and %d", a.Token(), b.Token())
		}
		written := make(chan *client.Lock, 1)
		queued := make(chan bool, 100)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			l, err := handles[2].Acquire(ctx, api.Exclusive, client.OnQueued(func(client.Queued) { queued <- true }))
			if err != nil {
				t.Error(err)
			}
			written <- l
		})
		<-queued
		late := make(chan *client.Lock, 1)
		waiting.Go(func() { late <- shared(3) })
		time.Sleep(5 * time.Second)
		select {
		case <-late:
			t.Error("a reader overtook an earlier writer")
		case <-written:
			t.Error("a writer shares the lock with readers")
		default:
		}
		for _, l := range []*client.Lock{a, b} {
			if err := l.Release(ctx); err != nil {
				t.Error(err)
			}
		}
		w := <-written
		if w.Token() <= a.Token() {
			t.Errorf("token %d follows %d", w.Token(), a.Token())
		}
		if err := w.Release(ctx); err != nil {
			t.Error(err)
		}
		<-late
		waiting.Wait()
	})
}

// A request that is given up leaves no trace: the next in the queue gets the
// lock, and the client that gave up can ask again.
func TestGivingUp(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		held := acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "holder", client.Config{}), "/ls/local/lock", 0))
		impatient := open(t, ctx, dial(t, ctx, c, "impatient", client.Config{}), "/ls/local/lock", 0)
		last := dial(t, ctx, c, "patient", client.Config{})
		patient := open(t, ctx, last, "/ls/local/lock", 0)
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if _, err := impatient.Acquire(short, api.Exclusive); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after 3 s: %v", err)
		}
		got := make(chan *client.Lock, 1)
		var waiting sync.WaitGroup
		waiting.Go(func() { got <- acquire(t, ctx, patient) })
		time.Sleep(5 * time.Second)
		locks, err := last.Cell().Locks(ctx, "")
		if err != nil || len(locks) != 1 || len(locks[0].Waiters) != 1 {
			t.Errorf("one waits, and one has given up: %+v, %v", locks, err)
		}
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		l := <-got
		waiting.Wait()
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		if err := acquire(t, ctx, impatient).Release(ctx); err != nil {
			t.Error(err)
		}
	})
}
