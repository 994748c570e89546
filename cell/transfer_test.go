package cell_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// other returns a replica that is not the master.
func other(c *celltest.Cell) string {
	if c.Master() == "r5" {
		return "r4"
	}
	return "r5"
}

// A hand-over to a replica that is down, or has stopped, is refused before
// anything is done, however often it is tried. It refuses or delays no change,
// and a master that is deposed in between can become master again.
func TestTransferToADeadReplica(t *testing.T) {
	for _, trouble := range []struct {
		name string
		make func(c *celltest.Cell, id string)
	}{
		{"killed", (*celltest.Cell).Kill},
		{"paused", func(c *celltest.Cell, id string) { c.Pause(id) }},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				cl := dial(t, ctx, c, "client", client.Config{})
				h := open(t, ctx, cl, "/ls/local/f", 0)
				from, dead := c.Master(), other(c)
				trouble.make(c, dead)
				if _, err := h.SetContents(ctx, []byte("so that it is behind")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // Raft contacts it less and less often
				for range 3 {
					began := time.Now()
					if err := c.Replica(from).Transfer(ctx, dead); !errors.Is(err, api.Unavailable) {
						t.Errorf("handed over to a replica that was %s: %v", trouble.name, err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("that took %v", took)
					}
					began = time.Now()
					if _, err := h.SetContents(ctx, []byte("x")); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("after a hand-over to a replica that was %s, a write took %v", trouble.name, took)
					}
				}
				c.Isolate(from)
				time.Sleep(5 * time.Second)
				next := c.Master()
				c.Rejoin(from)
				time.Sleep(5 * time.Second)
				if err := c.Replica(next).Transfer(ctx, from); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if _, err := h.SetContents(ctx, []byte("y")); err != nil || c.Master() != from {
					t.Errorf("handed back: %v, the master is %s", err, c.Master())
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the first write after handing back took %v", took)
				}
			})
		})
	}
}

// While writes go on, each of several hand-overs succeeds, and no write is
// refused finally.
func TestTransfersUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		c := celltest.Start(t, 5)
		stop, failed := make(chan struct{}), make(chan error, 4)
		for range 4 {
			h := open(t, ctx, dial(t, ctx, c, "writer", client.Config{}), "/ls/local/f", 0)
			go func() {
				for {
					select {
					case <-stop:
						failed <- nil
						return
					case <-time.After(time.Millisecond):
					}
					if _, err := h.SetContents(ctx, []byte("x")); err != nil {
						failed <- err
						return
					}
				}
			}()
		}
		for range 20 {
			from := c.Master()
			if err := c.Replica(from).Transfer(ctx, ""); err != nil {
				t.Errorf("hand-over from %s: %v", from, err)
			}
			for c.Master() == from {
				time.Sleep(time.Millisecond)
			}
		}
		close(stop)
		for range 4 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	})
}

// A client that watches and does nothing else has an event of each change that begins after
// the last of some hand-overs in quick succession, or a marker after it.
func TestEventsAfterHandOvers(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				r := rand.New(rand.NewPCG(seed, 7))
				for _, host := range []string{"watcher", "author"} {
					c.Slow(host, time.Duration(r.IntN(100))*time.Millisecond)
				}
				watcher := dial(t, ctx, c, "watcher", client.Config{NoCache: true})
				dir, err := watcher.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory, Events: []api.EventKind{api.EventChildAdded}})
				if err != nil {
					t.Fatal(err)
				}
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
				for i := range 20 {
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
					h, err := author.Open(ctx, "/ls/local/d/"+name, client.OpenOptions{Write: true, Create: client.NewFile})
					if err != nil {
						t.Fatal(err)
					}
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
			})
		})
	}
}

// What a take-over takes is measured part by part: the first two are the whole, and the others begin then. One client cannot
// be reached, so the caches take a cache lease.
func TestTakeoverIsMeasuredByPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		c := celltest.Start(t, 3)
		near, far := dial(t, ctx, c, "near", client.Config{}), dial(t, ctx, c, "far", client.Config{})
		open(t, ctx, near, "/ls/local/file", 0)
		open(t, ctx, far, "/ls/local/file", 0)
		c.Cut("far")
		c.FailOver()
		time.Sleep(15 * time.Second)
		counts, sums := cell.Measured(c.Replica(c.Master()))
		const phase = "chubby_takeover_phase_seconds "
		for _, name := range []string{"chubby_takeover_seconds", phase + "election", phase + "log", phase + "leases", phase + "first_lease", phase + "sessions", phase + "caches"} {
			if counts[name] != 1 {
				t.Errorf("%s was measured %d times; want once", name, counts[name])
			}
		}
		if parts, whole := sums[phase+"log"]+sums[phase+"leases"], sums["chubby_takeover_seconds"]; math.Abs(parts-whole) > 1e-9 {
			t.Errorf("log and leases took %v s, and the take-over %v", parts, whole)
		}
		if took := sums[phase+"caches"]; took < 1 || took > api.CacheLease.Seconds()+1 {
			t.Errorf("caches took %v s, and a client that cannot be reached has a cache lease of %v", took, api.CacheLease)
		}
		if took := sums[phase+"first_lease"]; took > sums[phase+"caches"] {
			t.Errorf("the first lease took %v s, as long as if the client that cannot be reached were waited for", took)
		}
		c.Heal("far")
	})
}

// If the only session that outlived the master is dead, there is no first lease: none is waited for when it has ended, and that of a client that
// comes hours later is no part of the take-over.
func TestNoFirstLeaseOfADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c := celltest.Start(t, 3)
		dial(t, ctx, c, "far", client.Config{})
		c.Cut("far")
		c.FailOver()
		time.Sleep(2 * time.Minute)
		late := dial(t, ctx, c, "late", client.Config{})
		time.Sleep(15 * time.Second)
		counts, _ := cell.Measured(c.Replica(c.Master()))
		for name, want := range map[string]uint64{"leases": 1, "first_lease": 0, "sessions": 1} {
			if n := counts["chubby_takeover_phase_seconds "+name]; n != want {
				t.Errorf("%s was measured %d times; want %d", name, n, want)
			}
		}
		o, err := late.Cell().Overview(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range o.Takeovers[0].Phases {
			if p.Unfinished || p.Name == "first_lease" {
				t.Errorf("two minutes after the take-over it has the phase %+v", p)
			}
		}
		c.Heal("far")
	})
}

// Where nobody outlived a master, nobody is waited for: a session that comes hours later is no part of the take-over.
func TestNoPhaseWithoutSessions(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		time.Sleep(time.Minute)
		dial(t, ctx, c, "late", client.Config{})
		time.Sleep(15 * time.Second)
		counts, _ := cell.Measured(c.Replica(c.Master()))
		for name, want := range map[string]uint64{"election": 0, "log": 1, "leases": 1, "first_lease": 0, "sessions": 0, "caches": 0, "first_grant": 0} {
			if n := counts["chubby_takeover_phase_seconds "+name]; n != want {
				t.Errorf("%s was measured %d times; want %d", name, n, want)
			}
		}
		if cell.Gauges(c.Replica(c.Master()))["chubby_sessions"] != 1 {
			t.Error("there is no session")
		}
	})
}
