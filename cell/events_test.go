package cell_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// watchFile opens a file for events of its contents.
func watchFile(t *testing.T, ctx context.Context, c *client.Client, path string) *client.Handle {
	t.Helper()
	h := must(c.Open(ctx, path, client.OpenOptions{Read: true, Create: client.File, Events: []api.EventKind{api.EventContentsModified}}))(t)
	return h
}

// Events have no gaps and no duplicates, and are in order, whatever happens to the network and to masters. No event
// comes before the change can be read. Where events may have been lost, a fail-over or a LOST event says so (Chubby
// §2.5).
func TestEventsThroughTrouble(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path, writes = "/ls/local/f", 400
		c.Slow("watcher", 2*time.Millisecond)
		h := watchFile(t, ctx, dial(t, ctx, c, "watcher", client.Config{}), path)
		author := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		first := firstWrite(t, ctx, author)
		var busy sync.WaitGroup
		stop := make(chan struct{})
		var kills int64
		busy.Go(func() { kills = killMasters(c, 7*time.Second, stop) })
		busy.Go(func() { flap(c, "watcher", stop) })
		busy.Go(func() {
			defer close(stop)
			for i := range writes {
				<-time.After(time.Duration(rand.N(100)) * time.Millisecond)
				report(t, errOf(author.SetContents(ctx, []byte(fmt.Sprint(i)))))
			}
		})
		announced := follow(t, ctx, h, first, first+writes)
		busy.Wait()
		t.Logf("%d times something may have been lost; %d masters killed", announced, kills)
		failIf(t, kills == 0 || announced == 0, "too few failures: the test proves nothing")
	})
}

// flap cuts a host off for a moment again and again, until stop is closed.
func flap(c *celltest.Cell, host string, stop <-chan struct{}) {
	for {
		for _, change := range []func(...string){c.Cut, c.Heal} {
			select {
			case <-stop:
				c.Heal(host)
				return
			case <-time.After(time.Duration(rand.N(300)) * time.Millisecond):
			}
			change(host)
		}
	}
}

// firstWrite writes to a file and returns the generation: the following writes
// get the next numbers, because nothing else draws from the cell's counter.
func firstWrite(t *testing.T, ctx context.Context, author *client.Handle) api.Generation {
	t.Helper()
	stat := must(author.SetContents(ctx, []byte("first")))(t)
	return stat.Content
}

// follow reads events of contents until it has seen the last write, and checks
// them. It returns how often events may have been lost.
func follow(t *testing.T, ctx context.Context, h *client.Handle, seen, last api.Generation) (announced int) {
	t.Helper()
	for seen < last {
		e := must(h.Next(ctx))(t)
		stat := must(h.Stat(ctx))(t)
		switch e.Kind {
		case api.EventMasterFailedOver, api.EventLost:
			announced++
			seen = max(seen, stat.Content) // it has read the file again
		case api.EventContentsModified:
			if stat.Content < e.Generation {
				t.Fatalf("the event of write %d came before the write: the file is at %d", e.Generation, stat.Content)
			}
			stopIf(t, e.Generation > seen+1, "the event of write %d came after that of write %d", e.Generation, seen)
			seen = max(seen, e.Generation) // a lower one was seen already when it read the file again
		default:
			t.Fatalf("unexpected %v", e.Kind)
		}
	}
	return announced
}

// In one epoch, each event comes once.
func TestEventsOnce(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		c.Slow("watcher", time.Millisecond)
		h := watchFile(t, ctx, dial(t, ctx, c, "watcher", client.Config{}), path)
		author := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		stop := make(chan struct{})
		var busy sync.WaitGroup
		busy.Go(func() { flap(c, "watcher", stop) })
		for i := range 300 {
			stat := must(author.SetContents(ctx, []byte(fmt.Sprint(i))))(t)
			e, err := h.Next(ctx)
			if err != nil || e.Kind != api.EventContentsModified || e.Generation != stat.Content {
				t.Fatalf("after write %d: %v of %d, %v", stat.Content, e.Kind, e.Generation, err)
			}
		}
		close(stop)
		busy.Wait()
	})
}

// A client that cannot be reached for a while delays no other client: its events wait, up to a bound. Beyond it, the
// client gets one event in their place which says that some were lost.
func TestEventsOfSlowClient(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		slow := dial(t, ctx, c, "slow", client.Config{Lease: api.MaxLease, NoCache: true})
		h := watchFile(t, ctx, slow, path)
		author := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		first := firstWrite(t, ctx, author)
		c.Cut("slow")
		const writes = api.MaxEventQueue + 200
		began := time.Now()
		for range writes {
			must(author.SetContents(ctx, nil))(t)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%d writes took %v beside a slow client", writes, took)
		}
		c.Heal("slow")
		lost := follow(t, ctx, h, first, first+writes)
		failIf(t, lost == 0, "events were lost, and no event says so")
		report(t, slow.Err(), "the slow client's session")
	})
}

// An application that does not read its events learns where the gap is, and its session is not affected.
func TestEventsNobodyReads(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		cl := dial(t, ctx, c, "lazy", client.Config{Lease: api.MinLease})
		h := watchFile(t, ctx, cl, path)
		author := open(t, ctx, dial(t, ctx, c, "author", client.Config{}), path, 0)
		first := firstWrite(t, ctx, author)
		const writes = api.MaxEventQueue + 100
		for range writes {
			must(author.SetContents(ctx, nil))(t)
		}
		<-time.After(time.Minute)
		noErr(t, cl.Err(), "the session")
		equal(t, follow(t, ctx, h, first, first+writes), 1, "told %d times that events were lost")
	})
}

// Very many children come and go, and the watcher of their directory gets an event for each, or is
// told to read again. With -full there are ten thousand.
func TestEventsOfManyChildren(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const workers = 20
		children, removed := 1500, 150
		if *full {
			children, removed = 10_000, 1000
		}
		watcher := dial(t, ctx, c, "watcher", client.Config{})
		d, err := watcher.Open(ctx, "/ls/local/d", client.OpenOptions{
			Read: true, Create: client.Directory, Events: []api.EventKind{api.EventChildAdded, api.EventChildRemoved},
		})
		noErr(t, err)
		author := dial(t, ctx, c, "author", client.Config{})
		var creating sync.WaitGroup
		for w := range workers {
			creating.Go(func() {
				for i := w; i < children; i += workers {
					h, err := author.Open(ctx, fmt.Sprintf("/ls/local/d/f%d", i), client.OpenOptions{Write: true, Create: client.NewFile})
					if err == nil && i < removed {
						err = h.Delete(ctx)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		known := map[string]bool{}
		heard := 0
		for done := false; !done; {
			e := must(d.Next(ctx))(t)
			switch e.Kind {
			case api.EventChildAdded, api.EventChildRemoved:
				if heard++; known[e.Child] == (e.Kind == api.EventChildAdded) {
					t.Fatalf("%v of %s, which is known: %v", e.Kind, e.Child, known[e.Child])
				}
				if known[e.Child] = true; e.Kind == api.EventChildRemoved {
					delete(known, e.Child)
				}
			default:
				t.Fatalf("unexpected %v: the watcher kept up", e.Kind)
			}
			done = heard == children+removed
		}
		creating.Wait()
		list, err := d.ReadDir(ctx)
		if err != nil || len(list) != children-removed || len(known) != len(list) {
			t.Errorf("%d children are listed and %d known, want %d (%v)", len(list), len(known), children-removed, err)
		}
	})
}

// A new master first tells every session of the fail-over (Chubby §2.5, §2.9),
// whatever the client library does with that.
func TestFailOverIsTold(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		w := newWire(t, ctx, c)
		me := w.session("")
		c.Kill(w.master)
		reply := must(connect(t, c.Dial, c.Master(), nil).KeepAlive(ctx, &pb.KeepAliveRequest{Caller: me}))(t)
		if events := reply.GetEvents(); len(events) != 1 || events[0].GetKind() != pb.EventKind_EVENT_KIND_MASTER_FAILED_OVER || reply.GetGrant() == nil {
			t.Errorf("the new master answers %v", reply)
		}
	})
}

// A watcher of a lock gets an event when its last holder loses it, at the moment of the loss, and none if the lock
// passes to the next holder in the same entry.
func TestEventLockVacant(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const path = "/ls/local/f"
		watcher := must(dial(t, ctx, c, "watcher", client.Config{}).Open(ctx, path, client.OpenOptions{
			Read: true, Create: client.File, Events: []api.EventKind{api.EventLockAcquired, api.EventLockVacant},
		}))(t)
		expect := func(what string, kind api.EventKind, generation api.Generation) {
			t.Helper()
			if e, err := watcher.Next(ctx); err != nil || e.Kind != kind || e.Generation != generation {
				t.Fatalf("%s: %v %v %v", what, e.Kind, e.Generation, err)
			}
		}
		take := func(h *client.Handle) *client.Lock {
			l, err := h.Acquire(ctx, api.Exclusive)
			if err != nil {
				t.Error(err)
				return nil
			}
			return l
		}
		first := take(open(t, ctx, dial(t, ctx, c, "first", client.Config{}), path, 0))
		expect("acquired", api.EventLockAcquired, first.Sequencer().Generation)
		dying := dial(t, ctx, c, "second", client.Config{})
		queued := make(chan struct{})
		next := make(chan *client.Lock)
		h := open(t, ctx, dying, path, 30*time.Second)
		go func() {
			l, err := h.Acquire(ctx, api.Exclusive, client.OnQueued(func(client.Queued) {
				select {
				case <-queued:
				default:
					close(queued)
				}
			}))
			report(t, err)
			next <- l
		}()
		<-queued
		noErr(t, first.Release(ctx))
		second := <-next
		expect("handed over", api.EventLockAcquired, second.Sequencer().Generation)
		c.Expire(dying.Session())
		expect("its session ended", api.EventLockVacant, second.Sequencer().Generation)
		third := take(open(t, ctx, dial(t, ctx, c, "third", client.Config{}), path, 0))
		expect("after the lock-delay", api.EventLockAcquired, third.Sequencer().Generation)
		noErr(t, third.Release(ctx))
		expect("released", api.EventLockVacant, third.Sequencer().Generation)
	})
}

// A client that watches and does nothing else has an event of each change that begins after
// the last of some hand-overs in quick succession, or a marker after it. Each seed is another history: two, with -full twenty.
func TestEventsAfterHandOvers(t *testing.T) {
	seeds, rounds := uint64(2), 10
	if *full {
		seeds, rounds = 20, 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				r := rand.New(rand.NewPCG(seed, 7))
				for _, host := range []string{"watcher", "author"} {
					c.Slow(host, time.Duration(r.IntN(100))*time.Millisecond)
				}
				watcher := dial(t, ctx, c, "watcher", client.Config{NoCache: true})
				dir, err := watcher.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory, Events: []api.EventKind{api.EventChildAdded}})
				noErr(t, err)
				author := dial(t, ctx, c, "author", client.Config{})
				events := make(chan api.Event, 10000)
				go func() {
					for {
						e, err := dir.Next(ctx)
						if err != nil {
							return
						}
						events <- e
					}
				}()
				for i := range rounds {
					for range 1 + r.IntN(5) {
						time.Sleep(time.Duration(r.IntN([]int{20, 100, 300, 1000}[r.IntN(4)])) * time.Millisecond)
						c.Transfer()
					}
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					for len(events) > 0 {
						<-events
					}
					name := fmt.Sprintf("f%d", i)
					began := time.Now()
					h := must(author.Open(ctx, "/ls/local/d/"+name, client.OpenOptions{Write: true, Create: client.NewFile}))(t)
					_ = h.Close(ctx)
					for waiting := true; waiting; {
						select {
						case e := <-events:
							waiting = e.Child != name && e.Kind != api.EventMasterFailedOver && e.Kind != api.EventLost
						case <-time.After(30 * time.Second):
							t.Fatalf("no event of %s, which was created at %v", name, began)
						}
					}
				}
			}, calm)
		})
	}
}
