package cell_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// Chubby §2.8, §2.9: when the master fails, sessions, locks and handles
// continue under the next one; no client that asks for the lock meanwhile gets
// it.
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

// Every change happens exactly once, though replies are lost all the time and
// masters change. Each write draws one number from the cell's counter, and
// nothing else does meanwhile (decision 13).
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
				c.Reset("writer") // so that answers are lost: Cut only delays them
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				c.Heal("writer")
				if i%25 == 24 {
					kills++
					master := c.Master()
					c.Kill(master)
					c.Restart(master)
				}
			}
		})
		const writers = 4
		each := 250
		if *full {
			each = 2000
		}
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
		if err != nil || stat.Content != first+api.Generation(writers*each) {
			t.Errorf("%d writes took effect %d times (%v)", writers*each, stat.Content-first, err)
		}
	}, cell.RefuseEntries)
}

// The ephemeral nodes of a session end with it (Chubby §2.3); a session that
// closes releases its locks at once.
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

// A lost reply to a KeepAlive costs no client its lease. The client sends the
// number of its newest grant; if that is not the newest, it is answered at
// once. Otherwise the master parks the call until 7/12 of the lease have passed
// (Chubby §2.8).
func TestLostKeepAliveReply(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
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
			t.Errorf("a client that does not know its newest grant was parked for %v", parked)
		}
		if parked := keepAlive(newest); !isDue(parked) {
			t.Errorf("parked for %v, want %v or a little less", parked, due)
		}
	})
}

// When a node is deleted, every handle on it becomes invalid (Chubby §2.6). A
// node whose lock is held cannot be deleted.
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

// Replicas that have applied the same entries report the same hash, and a
// different one after another entry.
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
