package celltest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// TestMastersChange: after each drill another replica is the master, and the
// client's next call reaches it.
func TestMastersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		file := dial(t, c, "client").open(t, "/ls/local/file", 0)
		for range 3 {
			before := c.Master()
			if killed := c.FailOver(); killed != before || c.Replica(killed) != nil || c.Master() == killed {
				t.Errorf("%s was the master, %s was killed, and %s is the master now", before, killed, c.Master())
			}
			put(t, file, "after a fail-over")
			c.Restart(before)
			before = c.Master()
			if c.Transfer(); c.Master() == before {
				t.Errorf("%s handed over and is still the master", before)
			}
			contents(t, file, "after a fail-over")
		}
	})
}

// A hand-over succeeds also while the cell comes to rest after a cut, when the request to the other
// replica may be lost with a connection.
func TestTransferAfterIsolation(t *testing.T) {
	for wait := time.Duration(0); wait < 20*time.Millisecond; wait += time.Millisecond {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := celltest.Start(t, 3)
				master := c.Master()
				c.Isolate(master)
				time.Sleep(wait)
				c.Rejoin(master)
				c.Transfer()
			})
		})
	}
}

// A master whose process has died is replaced before the election timeout could have passed, in
// cells of three, of five, and when another has died before it. (Streams that Raft
// keeps of a replica's earlier process would make it lose votes; so every cell is a new one.)
func TestDeadMasterIsReplacedAtOnce(t *testing.T) {
	for _, c := range []struct {
		name           string
		replicas, dead int // before the master dies
	}{{"of three", 3, 0}, {"of five", 5, 0}, {"of five, one of them down", 5, 1}} {
		t.Run(c.name, func(t *testing.T) {
			for range 3 {
				synctest.Test(t, func(t *testing.T) {
					cl := celltest.Start(t, c.replicas)
					for range c.dead {
						cl.Kill(follower(cl))
					}
					master := cl.Master()
					time.Sleep(time.Second) // everybody has heard of the master
					killed := time.Now()
					cl.Kill(master)
					next := cl.Master()
					if took := time.Since(killed); took >= cell.DefaultElectionTimeout {
						t.Errorf("%s was replaced by %s after %v", master, next, took)
					}
				})
			}
		})
	}
}

// Replicas that were refused by a master that lived, and could ask nobody to replace it, do so when
// it has died.
func TestDeadMasterIsReplacedByWhoWasRefusedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := celltest.Start(t, 3)
		master := cl.Master()
		epoch := cl.Replica(master).Health().Epoch
		for _, id := range []string{"r1", "r2", "r3"} {
			if id != master {
				cl.Isolate(id)
				time.Sleep(2 * time.Second)
				cl.Rejoin(id)
				time.Sleep(10 * time.Second)
			}
		}
		if now := cl.Master(); now != master || cl.Replica(now).Health().Epoch != epoch {
			t.Fatalf("%s is the master, not %s", now, master)
		}
		killed := time.Now()
		cl.Kill(master)
		next := cl.Master()
		if took := time.Since(killed); took >= cell.DefaultElectionTimeout {
			t.Errorf("%s was replaced by %s after %v", master, next, took)
		}
	})
}

// However many notice that the master is dead, there is one election.
func TestDeadMasterIsReplacedByOneElection(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			cl := celltest.Start(t, 5)
			master := cl.Master()
			time.Sleep(time.Second)
			before := cl.Replica(master).Health().Epoch
			cl.Kill(master)
			next := cl.Master()
			time.Sleep(time.Second)
			if now := cl.Master(); now != next || cl.Replica(now).Health().Epoch != before+1 {
				t.Errorf("%s of epoch %d was replaced by %s, and %s is the master in epoch %d", master, before, next, now, cl.Replica(now).Health().Epoch)
			}
		})
	}
}

// follower returns a running replica that is not the master.
func follower(c *celltest.Cell) string {
	if c.Master() == "r1" {
		return "r2"
	}
	return "r1"
}

// A master whose connections break, and whose process lives, stays the master.
func TestBrokenStreamsElectNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := celltest.Start(t, 5)
		master := cl.Master()
		epoch := cl.Replica(master).Health().Epoch
		for range 10 {
			time.Sleep(time.Second)
			cl.Sever(master)
		}
		time.Sleep(time.Second)
		if now := cl.Master(); now != master || cl.Replica(now).Health().Epoch != epoch {
			t.Errorf("%s is the master in epoch %v, and %s was in epoch %v", now, cl.Replica(now).Health().Epoch, master, epoch)
		}
	})
}

// A lock is held on when the master dies; docs/testing.md shows this test.
func TestLockOutlivesTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := celltest.Start(t, 3), t.Context()
		cl, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("web1"), Clock: c.ClockOf("web1")})
		if err != nil {
			t.Fatal(err)
		}
		h, err := cl.Open(ctx, "/ls/local/work", client.OpenOptions{Write: true, Create: client.File, LockDelay: api.DefaultLockDelay})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		c.FailOver()
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(lock.Release(ctx), cl.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
}
