package cell_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// inCell runs a test in a bubble of virtual time, with a cell of five.
func inCell(t *testing.T, test func(t *testing.T, ctx context.Context, c *celltest.Cell), edits ...func(*cell.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		test(t, ctx, celltest.Start(t, 5, edits...))
	})
}

// dial opens a session on a host of its own, closed at the end of the test.
func dial(t *testing.T, ctx context.Context, c *celltest.Cell, host string, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.Servers == nil {
		cfg.Servers = c.Servers()
	}
	if cfg.Dialer == nil {
		cfg.Dialer = c.DialFrom(host)
	}
	cfg.Clock = celltest.Clock
	cl, err := client.New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cl.Close(done) // its cell may be cut off
	})
	return cl
}

func open(t *testing.T, ctx context.Context, c *client.Client, path string, delay time.Duration) *client.Handle {
	t.Helper()
	h, err := c.Open(ctx, path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func acquire(t *testing.T, ctx context.Context, h *client.Handle) *client.Lock {
	t.Helper()
	l, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Chubby §2.4, §2.8: a lock whose holder became unreachable is not to be had
// before its lease is over and its lock-delay after that; then it is, with a
// greater token; and by then the holder's own context has ended.
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

// Chubby §2.8, §2.9: when the master fails, sessions, locks and handles go on
// under the next one; nobody who asks for the lock meanwhile gets it.
func TestLocksSurviveFailOver(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "holder", client.Config{OnState: func(s client.StateChange) {
			if s.State == session.Jeopardy {
				t.Error("a fail-over put the session into jeopardy")
			}
		}})
		h := open(t, ctx, cl, "/ls/local/lock", 0)
		held := acquire(t, ctx, h)
		other := open(t, ctx, dial(t, ctx, c, "other", client.Config{}), "/ls/local/lock", 0)
		for range 4 {
			master := c.Master()
			c.Kill(master)
			began := time.Now()
			if _, err := h.SetContents(ctx, []byte(master)); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s killed, written through its successor %v later", master, time.Since(began))
			if _, err := other.TryAcquire(ctx, api.Exclusive); !errors.Is(err, api.LockHeld) {
				t.Errorf("the lock of a holder that lives: %v", err)
			}
			c.Restart(master)
			time.Sleep(time.Minute)
		}
		if held.Context().Err() != nil || cl.State() != session.Safe {
			t.Errorf("the holder lost its lock: %v, session %v", context.Cause(held.Context()), cl.State())
		}
		if err := cl.CheckSequencer(ctx, held.Sequencer().String()); err != nil {
			t.Error(err)
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Grants follow the order of the requests (FIFO within an epoch), and those who
// were waiting when the master failed keep their places.
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
						t.Errorf("request %d stands at place %d", i, place)
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

// Readers share a lock, and nobody overtakes an earlier writer.
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
			t.Errorf("two readers of one holding have tokens %d and %d", a.Token(), b.Token())
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

// A request that is given up leaves no trace: the next in the queue has the
// lock, and the one who gave up can ask again.
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

// Every change happens exactly once, though replies are lost all the time and
// masters change: each write draws one number from the cell's counter, and nothing
// else does meanwhile (decision 13).
func TestExactlyOnce(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		c.Slow("writer", 3*time.Millisecond)
		h := open(t, ctx, dial(t, ctx, c, "writer", client.Config{}), "/ls/local/counter", 0)
		first := firstWrite(t, ctx, h)
		chaos, stop := context.WithCancel(ctx)
		var breaking sync.WaitGroup
		kills := 0
		breaking.Go(func() {
			r := rand.New(rand.NewPCG(1, 1))
			for i := 0; chaos.Err() == nil; i++ {
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
				c.Reset("writer") // loses answers; Cut would only delay them
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				c.Heal("writer")
				if i%50 == 49 {
					kills++
					master := c.Master()
					c.Kill(master)
					c.Restart(master)
				}
			}
		})
		const writers, each = 4, 500
		var writing sync.WaitGroup
		for range writers {
			writing.Go(func() {
				for range each {
					if _, err := h.SetContents(ctx, []byte("x")); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		writing.Wait()
		stop()
		breaking.Wait()
		if kills == 0 {
			t.Error("no master was killed")
		}
		stat, err := h.Stat(ctx)
		if err != nil || stat.Content != first+writers*each {
			t.Errorf("%d writes took effect %d times (%v)", writers*each, stat.Content-first, err)
		}
	}, cell.RefuseEntries)
}

// A session that ends takes its ephemeral nodes along (Chubby §2.3); one that
// closes gives its locks back at once.
func TestSessionEnds(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "owner", client.Config{})
		held := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", api.DefaultLockDelay))
		if _, err := cl.Open(ctx, "/ls/local/up", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true}); err != nil {
			t.Fatal(err)
		}
		other := dial(t, ctx, c, "other", client.Config{})
		if _, err := other.Open(ctx, "/ls/local/up", client.OpenOptions{Read: true}); err != nil {
			t.Fatal(err)
		}
		open(t, ctx, other, "/ls/local/lock", 0)
		if err := other.Close(ctx); err != nil {
			t.Fatal(err)
		}
		other = dial(t, ctx, c, "other", client.Config{})
		lock := open(t, ctx, other, "/ls/local/lock", 0)
		if err := cl.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if held.Context().Err() == nil {
			t.Error("the lock's context outlived its session")
		}
		if _, err := lock.TryAcquire(ctx, api.Exclusive); err != nil {
			t.Errorf("the lock of a session that closed: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := other.Open(ctx, "/ls/local/up", client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
			t.Errorf("the ephemeral node of a session that closed: %v", err)
		}
	})
}

// A KeepAlive whose reply was lost costs nobody a lease: the client shows by the
// number of its newest grant that it has not heard, and is answered at once;
// otherwise the call is parked until 7/12 of the lease are over (Chubby §2.8).
func TestLostKeepAliveReply(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		open(t, ctx, dial(t, ctx, c, "other", client.Config{}), "/ls/local/file", 0)
		r := rawSession(t, ctx, c, c.Master())
		newest := r.grant
		keepAlive := func(grant uint64) time.Duration {
			began := time.Now()
			reply, err := r.chubby.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: r.caller, Grant: grant})
			if err == nil && reply.GetGrant() == nil && time.Since(began) > time.Second { // the master wants a sign of life
				came := time.Now()
				if reply, err = r.chubby.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: r.caller, Grant: grant}); time.Since(came) > 0 {
					t.Errorf("a client that was asked for a sign of life, and gave it, was parked for %v", time.Since(came))
				}
			}
			if err != nil || reply.GetGrant().GetNumber() <= newest {
				t.Fatalf("%v, %v", reply, err)
			}
			newest = reply.GetGrant().GetNumber()
			return time.Since(began).Round(100 * time.Millisecond)
		}
		// Replies that fall due within 1/48 of the lease are sent together.
		due := session.Due(api.MaxLease)
		isDue := func(parked time.Duration) bool { return parked <= due && parked >= due-api.MaxLease/48 }
		heard := newest
		if parked := keepAlive(newest); !isDue(parked) {
			t.Errorf("parked for %v, want %v or a little less", parked, due)
		}
		// That reply is lost: the client knows of the first grant only.
		if parked := keepAlive(heard); parked != 0 {
			t.Errorf("a client that has not heard of its lease was parked for %v", parked)
		}
		if parked := keepAlive(newest); !isDue(parked) {
			t.Errorf("parked for %v, want %v or a little less", parked, due)
		}
	})
}

// A node that is deleted makes every handle on it invalid (Chubby §2.6), and
// its lock cannot be deleted away from its holder.
func TestDeletion(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		a := open(t, ctx, dial(t, ctx, c, "a", client.Config{}), "/ls/local/file", 0)
		b := open(t, ctx, dial(t, ctx, c, "b", client.Config{}), "/ls/local/file", 0)
		l := acquire(t, ctx, a)
		if err := b.Delete(ctx); !errors.Is(err, api.LockHeld) {
			t.Errorf("deleting a locked file: %v", err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		before, err := a.Stat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Stat(ctx); !errors.Is(err, api.HandleClosed) {
			t.Errorf("a handle on a deleted file: %v", err)
		}
		again := open(t, ctx, dial(t, ctx, c, "a", client.Config{}), "/ls/local/file", 0)
		after, err := again.Stat(ctx)
		if err != nil || after.Instance <= before.Instance {
			t.Errorf("instance %d follows %d (%v)", after.Instance, before.Instance, err)
		}
		if _, err := a.Stat(ctx); !errors.Is(err, api.HandleClosed) {
			t.Errorf("a handle on an earlier instance: %v", err)
		}
	})
}

// Replicas that have applied the same entries tell the same hash, and another one
// when more was applied.
func TestStatusComparesReplicas(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "ann", client.Config{})
		hashes := map[string]bool{}
		for _, path := range []string{"/ls/local/a", "/ls/local/b"} {
			open(t, ctx, cl, path, 0)
			time.Sleep(5 * time.Second) // until all have applied it
			status, err := cl.Cell().Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			first := status.Replicas[0]
			for _, r := range status.Replicas {
				if r.Err != nil || r.Applied != first.Applied || r.StateHash != first.StateHash || r.StateHash == "" {
					t.Errorf("%s has applied %d entries, hash %q; %s has %d, %q (%v)", first.ID, first.Applied, first.StateHash, r.ID, r.Applied, r.StateHash, r.Err)
				}
			}
			hashes[first.StateHash] = true
		}
		if len(hashes) != 2 {
			t.Errorf("before and after a change: %v", hashes)
		}
	})
}
