package cell

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// startCell starts a cell of n replicas, r1 to rn, on a network in memory, and
// returns them when it has a master. Each edit may change the configuration of
// every replica. Use it in a synctest bubble.
func startCell(t *testing.T, n int, edits ...func(*Config)) map[string]*Replica {
	t.Helper()
	network, members, replicas := memnet.New(), []Member(nil), map[string]*Replica{}
	for i := range n {
		id := fmt.Sprintf("r%d", i+1)
		members = append(members, Member{ID: id, Client: id + ":client", Raft: id + ":raft"})
	}
	dir := t.TempDir()
	var starting sync.WaitGroup
	var mu sync.Mutex // guards replicas
	for _, m := range members {
		starting.Go(func() {
			cfg := Config{
				Cell: "local", ID: m.ID, Members: members, Data: filepath.Join(dir, m.ID), Bootstrap: true, InsecurePrincipals: true,
				ClientListener: network.Listen(m.Client), RaftListener: network.Listen(m.Raft), Dial: network.Dialer(m.Raft), Clock: testbed.Clock(),
			}
			for _, edit := range edits {
				edit(&cfg)
			}
			r, err := Start(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			replicas[m.ID] = r
		})
	}
	starting.Wait()
	for _, r := range replicas {
		t.Cleanup(func() {
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_ = r.Stop(gone) // there is no need to drain at the end of a test
			<-r.Done()
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	testbed.Await(t, "a master", func() bool { return masterOf(replicas) != "" })
	return replicas
}

// masterOf returns the id of the replica that serves as master, "" without one.
func masterOf(replicas map[string]*Replica) string {
	for id, r := range replicas {
		if r.master.Load() != nil {
			return id
		}
	}
	return ""
}

// refuseChanges makes a replica's Raft refuse every change while it leads, or
// ends that. It sets a field that Raft itself sometimes leaves set after a
// leadership transfer.
func refuseChanges(r *Replica, on int32) {
	flag := reflect.ValueOf(r.raft).Elem().FieldByName("leaderState").FieldByName("leadershipTransferInProgress")
	atomic.StoreInt32((*int32)(unsafe.Pointer(flag.UnsafeAddr())), on)
}

// A replica that is elected and cannot begin its epoch tries again; no replica
// reports it as the master meanwhile. If it still cannot after two election
// timeouts, it stops, and another is elected.
func TestElectedAndUnableToTakeOver(t *testing.T) {
	for _, passes := range []bool{true, false} {
		t.Run(fmt.Sprintf("passes=%v", passes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := startCell(t, 3)
				from := masterOf(replicas)
				to := map[string]string{"r1": "r2", "r2": "r3", "r3": "r1"}[from]
				refuseChanges(replicas[to], 1)
				if err := replicas[from].Transfer(t.Context(), to); err != nil {
					t.Fatal(err)
				}
				testbed.Await(t, to+" leading", func() bool { _, leads := replicas[to].leads(); return leads })
				testbed.Pass(DefaultElectionTimeout)
				for id, r := range replicas {
					if h := r.Health(); h.Ready {
						t.Errorf("%s calls the cell ready, with master %s, which cannot take over: %+v", id, h.Master, h)
					}
				}
				if passes {
					refuseChanges(replicas[to], 0)
					testbed.Pass(DefaultElectionTimeout)
					if got := masterOf(replicas); got != to || replicas[to].Err() != nil {
						t.Errorf("the master is %q; %s ended with %v", got, to, replicas[to].Err())
					}
					return
				}
				select {
				case <-replicas[to].Done():
				case <-time.After(5 * time.Second):
					t.Fatal("a replica that leads and cannot take over goes on")
				}
				if err := replicas[to].Err(); err == nil || !strings.Contains(err.Error(), "cannot become the master") {
					t.Errorf("it ended with %v", err)
				}
				delete(replicas, to)
				testbed.Await(t, "another master", func() bool { return masterOf(replicas) != "" })
			})
		})
	}
}

// There is one hand-over at a time: a second is refused until the first has
// ended.
func TestOneHandOverAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		r := replicas[masterOf(replicas)]
		r.handing <- struct{}{} // as while the first runs
		if err := r.Transfer(t.Context(), ""); api.CodeOf(err) != api.Unavailable || r.master.Load() == nil {
			t.Errorf("a second hand-over: %v", err)
		}
		<-r.handing
		if err := r.Transfer(t.Context(), ""); err != nil {
			t.Errorf("after the first: %v", err)
		}
	})
}

// Several notices of elections may wait to be read, while Raft has gone on: an
// epoch begins once in each term, and only the newest notice counts.
func TestOldNewsBeginNoEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 1)
		r := replicas["r1"]
		m := r.master.Load()
		for _, news := range []bool{false, true, true, false, true} {
			r.elections <- news // as of an old election: it is still the leader
		}
		testbed.Pass(time.Second)
		if now := r.master.Load(); now != m || m.Context().Err() != nil {
			t.Errorf("old news made an end of epoch %d, which goes on in Raft", m.Epoch())
		}
		if r.Err() != nil {
			t.Error(r.Err())
		}
	})
}

// A replica refuses to start with an election timeout with which a master that
// is cut off could outlive a lease.
func TestElectionTimeoutIsBelowEveryLease(t *testing.T) {
	cfg := Config{Cell: "local", ID: "r1", Data: "x", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:2"}}}
	for timeout, ok := range map[time.Duration]bool{
		0: true, MinElectionTimeout: true, MinElectionTimeout - 1: false, MaxElectionTimeout: true, MaxElectionTimeout + 1: false, api.MinLease: false,
	} {
		cfg.ElectionTimeout = timeout
		if err := cfg.Check(); (err == nil) != ok {
			t.Errorf("an election timeout of %v: %v", timeout, err)
		}
	}
	if MaxElectionTimeout >= api.MinLease {
		t.Errorf("%v is not below the shortest lease, %v", MaxElectionTimeout, api.MinLease)
	}
}
