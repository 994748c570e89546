package cell

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// TestDivergenceIsNoticed: without any request, both sides notice that a
// replica applied another entry than the others, and it stops.
func TestDivergenceIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		testbed.Pass(2 * compareEvery)
		for id, r := range replicas {
			if n := len(r.comparison.Differing()); n != 0 {
				t.Errorf("%s differs from %d replicas", id, n)
			}
		}
		at := replicas["r1"].fsm.State().Applied
		for id, r := range replicas {
			for other := range replicas {
				if held := r.passport.HeldBy(other); other != id && held < at {
					t.Errorf("%s remembers that %s held %d, want %d", id, other, held, at)
				}
			}
		}
		for id, r := range replicas {
			wall := int64(0)
			if id == "r2" {
				wall = 1 // of another second
			}
			data := voidEntry(t, wall)
			if err, failed := r.fsm.Apply(&raft.Log{Index: at + 1, Term: 9, Type: raft.LogCommand, Data: data}).(error); failed {
				t.Fatal(err)
			}
		}
		testbed.Pass(2 * compareEvery)
		for id, want := range map[string]int{"r1": 1, "r2": 2, "r3": 1} {
			if n := len(replicas[id].comparison.Differing()); n != want {
				t.Errorf("%s sees %d replicas that differ, want %d", id, n, want)
			}
		}
		testbed.Pass(30 * time.Second) // a check point is made at once
		for id, r := range replicas {
			if contradicted := r.Err() != nil; contradicted != (id == "r2") {
				t.Errorf("%s: %v", id, r.Err())
			}
		}
	})
}

// voidEntry is an entry of no epoch and of that second, so that its command does nothing.
func voidEntry(t *testing.T, wall int64) []byte {
	t.Helper()
	command := must(raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{}}.Encode(raftfsm.MaxLevel))(t)
	return must(raftfsm.JoinEntry(0, wall, []raftfsm.Encoded{command}))(t)
}

// hasCheckPoint has the master make a check point, and waits until all have heard of it.
func hasCheckPoint(replicas map[string]*Replica) {
	replicas[masterOf(replicas)].master.Load().Inspector.CheckPoints.Soon()
	testbed.Pass(4 * compareEvery) // and until another one can follow it at once
}

// Before a replica stops because of what it was told, the others have heard from it that it differs. They name it in their warnings.
// The check point comes at each time between two looks.
func TestWhoIsContradictedTellsTheOthers(t *testing.T) {
	for phase := time.Duration(0); phase < compareEvery; phase += time.Second {
		synctest.Test(t, func(t *testing.T) {
			replicas := startCell(t, 3, func(cfg *Config) { // in the bubble's time: none asks at the same time as another
				time.Sleep(map[string]time.Duration{"r1": time.Second, "r2": 2500 * time.Millisecond, "r3": 4 * time.Second}[cfg.ID])
			})
			hasCheckPoint(replicas)
			wrong := "r1"
			if replicas[wrong].master.Load() != nil { // a master reads what is damaged here
				wrong = "r2"
			}
			testbed.Pass(phase)
			damage(t, replicas[wrong])
			replicas[masterOf(replicas)].master.Load().Inspector.CheckPoints.Soon()
			for seconds := 0; replicas[wrong].Err() == nil; seconds++ {
				replicas[wrong].askForChecks(t.Context()) // as a master does all the time, to prove that it is the master
				if testbed.Pass(time.Second); seconds > 60 {
					t.Fatal("it does not stop")
				}
			}
			<-replicas[wrong].Done()
			for id, r := range replicas {
				if got := r.comparison.Differing(); id != wrong && !slices.Equal(got, []string{wrong}) {
					t.Errorf("%s has heard of a difference from %v", id, got)
				}
			}
		})
	}
}

// damage changes a bit of the state in the memory of a replica, as a faulty module of it would: no entry of the log says so.
func damage(t *testing.T, r *Replica) {
	t.Helper()
	if r.comparison.Own().Index == 0 { // it also waits for who has read the state to hash it
		t.Fatal("there was no check point")
	}
	r.fsm.State().Secret[0] ^= 1                // of no other replica, and of all later states of this one
	if _, err := r.fsm.Snapshot(); err != nil { // waits for the lock under which the next check point is applied
		t.Fatal(err)
	}
}

// A replica that may be about to stop contradicts nobody: of three, no two stop because of each other. What was heard before does not
// count; who is not contradicted when it asks again goes on, and contradicts as before.
func TestWhoMayLeaveContradictsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		hasCheckPoint(replicas)
		r1, r2 := replicas["r1"], replicas["r2"]
		own, others := r1.comparison.Checks()
		if own.Index == 0 || others["r2"] != own || others["r3"] != own {
			t.Fatalf("after a check point the checks are %+v and %+v", own, others)
		}
		own.Sum ^= 1
		if by, _ := peer.Contradicted(own, others, r1.voters()); len(by) != 2 {
			t.Fatalf("contradicted by %v", by)
		}
		r2.leaving.Store(true)
		if r1.stopIfContradicted(t.Context(), own) || r1.Err() != nil || r1.leaving.Load() {
			t.Fatalf("it stops because of one that may be leaving: %v", r1.Err())
		}
		r2.leaving.Store(false)
		failIf(t, !r1.stopIfContradicted(t.Context(), own) || r1.Err() == nil || !r1.leaving.Load(), "it does not stop")
		<-r1.Done()
	})
}
