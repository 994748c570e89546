package celltest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
)

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
	for range 10 {
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
