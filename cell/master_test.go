package cell_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// Chubby §2.8, §2.9: when the master fails, sessions, locks and handles continue under the next one; no client that
// asks for the lock meanwhile gets it.
func TestLocksSurviveFailOver(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "holder", client.Config{OnState: func(s client.StateChange) {
			failIf(t, s.State == session.Jeopardy, "a fail-over put the session into jeopardy")
		}})
		h := open(t, ctx, cl, "/ls/local/lock", 0)
		held := acquire(t, ctx, h)
		other := open(t, ctx, dial(t, ctx, c, "other", client.Config{}), "/ls/local/lock", 0)
		for range 4 {
			master := c.Master()
			c.Kill(master)
			began := time.Now()
			must(h.SetContents(ctx, []byte(master)))(t)
			t.Logf("%s killed, written through its successor %v later", master, time.Since(began))
			fails(t, errOf(other.TryAcquire(ctx, api.Exclusive)), api.LockHeld, "the lock of a holder that lives")
			c.Restart(master)
			time.Sleep(20 * time.Second) // more than a lease
		}
		if held.Context().Err() != nil || cl.State() != session.Safe {
			t.Errorf("the holder lost its lock: %v, session %v", context.Cause(held.Context()), cl.State())
		}
		report(t, cl.CheckSequencer(ctx, held.Sequencer().String()))
		report(t, held.Release(ctx))
	})
}

// The ephemeral nodes of a session end with it (Chubby §2.3); a session that closes releases its locks at once.
func TestSessionEnds(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "owner", client.Config{})
		held := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", api.DefaultLockDelay))
		must(cl.Open(ctx, "/ls/local/up", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true}))(t)
		other := dial(t, ctx, c, "other", client.Config{})
		must(other.Open(ctx, "/ls/local/up", client.OpenOptions{Read: true}))(t)
		open(t, ctx, other, "/ls/local/lock", 0)
		noErr(t, other.Close(ctx))
		other = dial(t, ctx, c, "other", client.Config{})
		lock := open(t, ctx, other, "/ls/local/lock", 0)
		noErr(t, cl.Close(ctx))
		failIf(t, held.Context().Err() == nil, "the lock's context outlived its session")
		report(t, errOf(lock.TryAcquire(ctx, api.Exclusive)), "the lock of a session that closed")
		time.Sleep(time.Second)
		if _, err := other.Open(ctx, "/ls/local/up", client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
			t.Errorf("the ephemeral node of a session that closed: %v", err)
		}
	})
}

// A lost reply to a KeepAlive costs no client its lease. The client sends the number of its newest grant; if that is
// not the newest, it is answered at once. Otherwise the master parks the call until 7/12 of the lease have passed
// (Chubby §2.8).
func TestLostKeepAliveReply(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		open(t, ctx, dial(t, ctx, c, "other", client.Config{}), "/ls/local/file", 0)
		r := rawSession(t, ctx, c, c.Master())
		newest := r.grant
		keepAlive := func(grant uint64) time.Duration {
			began := time.Now()
			reply, err := r.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: r.caller, Grant: grant})
			if err == nil && reply.GetGrant() == nil && time.Since(began) > time.Second { // the master wants a sign of life
				came := time.Now()
				if reply, err = r.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: r.caller, Grant: grant}); time.Since(came) > 0 {
					t.Errorf("a client that was asked for a sign of life, and gave it, was parked for %v", time.Since(came))
				}
			}
			stopIf(t, err != nil || reply.GetGrant().GetNumber() <= newest, "%v, %v", reply, err)
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
		equal(t, keepAlive(heard), 0, "a client that does not know its newest grant was parked for %v")
		if parked := keepAlive(newest); !isDue(parked) {
			t.Errorf("parked for %v, want %v or a little less", parked, due)
		}
	})
}

// When a node is deleted, every handle on it becomes invalid (Chubby §2.6). A
// node whose lock is held cannot be deleted.
func TestDeletion(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		a := open(t, ctx, dial(t, ctx, c, "a", client.Config{}), "/ls/local/file", 0)
		b := open(t, ctx, dial(t, ctx, c, "b", client.Config{}), "/ls/local/file", 0)
		l := acquire(t, ctx, a)
		fails(t, b.Delete(ctx), api.LockHeld, "deleting a locked file")
		noErr(t, l.Release(ctx))
		before := must(a.Stat(ctx))(t)
		noErr(t, b.Delete(ctx))
		fails(t, errOf(a.Stat(ctx)), api.HandleClosed, "a handle on a deleted file")
		again := open(t, ctx, dial(t, ctx, c, "a", client.Config{}), "/ls/local/file", 0)
		after, err := again.Stat(ctx)
		failIf(t, err != nil || after.Instance <= before.Instance, "instance %d follows %d (%v)", after.Instance, before.Instance, err)
		fails(t, errOf(a.Stat(ctx)), api.HandleClosed, "a handle on an earlier instance")
	})
}

// Replicas that have applied the same entries report the same hash, and a different one after another entry.
func TestStatusComparesReplicas(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "ann", client.Config{})
		hashes := map[string]bool{}
		for _, path := range []string{"/ls/local/a", "/ls/local/b"} {
			open(t, ctx, cl, path, 0)
			time.Sleep(5 * time.Second) // until all have applied it
			status := must(cl.Cell().Status(ctx))(t)
			first := status.Replicas[0]
			for _, r := range status.Replicas {
				if r.Err != nil || r.Applied != first.Applied || r.StateHash != first.StateHash || r.StateHash == "" {
					t.Errorf("%s has applied %d entries, hash %q; %s has %d, %q (%v)", first.ID, first.Applied, first.StateHash, r.ID, r.Applied, r.StateHash, r.Err)
				}
			}
			hashes[first.StateHash] = true
		}
		failIf(t, len(hashes) != 2, "before and after a change: %v", hashes)
	})
}

// full makes long tests as long as the documentation promises; make endurance sets it.
var full = flag.Bool("full", false, "make long tests as long as the promises say")

// Very many ephemeral nodes end together, and every replica starts again on the
// resulting log. With -full there are 500,000 nodes of 50 sessions.
func TestReplicasRestartAfterManyNodesDied(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		sessions, each := 4, 250
		if *full {
			sessions, each = 50, 10_000
		}
		var owners []*client.Client
		for i := range sessions {
			owners = append(owners, dial(t, ctx, c, fmt.Sprintf("owner%d", i), client.Config{}))
		}
		watcher := dial(t, ctx, c, "watcher", client.Config{})
		d := must(watcher.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory}))(t)
		// One more than the default quota of all principals: the directory counts, too.
		noErr(t, watcher.SetPrincipalQuota(ctx, "anonymous", api.Quota{Nodes: sessions*each + 1}))
		var creating sync.WaitGroup
		for i, owner := range owners {
			creating.Go(func() {
				for k := range each {
					path := fmt.Sprintf("/ls/local/d/%s-%d-%d", strings.Repeat("x", 140), i, k)
					if _, err := owner.Open(ctx, path, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		creating.Wait()
		for i := range owners {
			c.Cut(fmt.Sprintf("owner%d", i)) // they all expire together
		}
		for left := 1; left > 0 && ctx.Err() == nil; {
			stat := must(d.Stat(ctx))(t)
			left = stat.Children
			<-time.After(100 * time.Millisecond)
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			c.Kill(id)
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			c.Restart(id)
		}
		c.Master()
		if stat, err := d.Stat(ctx); err != nil || stat.Children != 0 {
			t.Errorf("after all replicas were started again: %d nodes, %v", stat.Children, err)
		}
		h := open(t, ctx, watcher, "/ls/local/lock", 0)
		report(t, errOf(h.TryAcquire(ctx, api.Exclusive)))
	})
}
