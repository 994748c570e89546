package fsm_test

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// busyLog returns entries that add, change and end sessions.
func busyLog(t *testing.T) []*raft.Log {
	log := []*raft.Log{logEntry(t, 1, newEpoch())}
	for i := range uint64(200) {
		id := api.SessionID(4 + i) // the root, and the bootstrap's nodes, come first
		log = append(log, logEntry(t, i+2, createSession(fmt.Sprint(i)),
			raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{Session: id - 10, Lease: 30 * time.Second}},
			raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: id - 20}}}}))
	}
	return log
}

// written returns a state as it is in a snapshot.
func written(t *testing.T, s *raftfsm.State) []byte {
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}

// restore restores a snapshot.
func restore(t *testing.T, f *fsm.FSM, snapshot []byte) {
	t.Helper()
	if err := f.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
		t.Fatal(err)
	}
}

// reader reads states until stop is closed. Each must be the state after an entry, whole, and no
// reader may go back.
func reader(t *testing.T, f *fsm.FSM, stop chan struct{}, want [][]byte) {
	for last := uint64(0); ; {
		select {
		case <-stop:
			return
		default:
		}
		s := f.State()
		if s.Applied < last || !bytes.Equal(written(t, s), want[s.Applied]) {
			t.Errorf("the state after entry %d is read as another, or after that of entry %d", s.Applied, last)
			return
		}
		last = s.Applied
		if sum, ok := f.HistoryAt(last); ok && sum != s.History {
			t.Errorf("the running hash after entry %d is %d in the trail and %d in the state", last, sum, s.History)
		}
	}
}

// While entries are applied, snapshots written and states restored, everybody reads whole states;
// the race detector checks the rest.
func TestReadersWhileEntriesAreApplied(t *testing.T) {
	log := busyLog(t)
	alone := newMachine(t)
	want := [][]byte{written(t, alone.State())}
	for _, one := range log {
		alone.Apply(one)
		want = append(want, written(t, alone.State()))
	}
	f := newMachine(t)
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	defer writers.Wait()
	defer readers.Wait()
	defer close(stop)
	for range 2 {
		readers.Go(func() { reader(t, f, stop, want) })
	}
	for i := 0; i < len(log); {
		n := min(1+i%5, len(log)-i)
		f.ApplyBatch(log[i : i+n])
		i += n
		if i%3 == 0 && f.State().Applied != uint64(i) {
			t.Errorf("after entry %d the state of before it is read", i)
		}
		if whole := want[i]; i%4 == 0 {
			snapshot, err := f.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			writers.Go(func() {
				if !bytes.Equal(persist(t, snapshot), whole) {
					t.Errorf("the snapshot after entry %d was written as another", i)
				}
			})
		}
		if i%7 == 0 { // the second one while readers ask for what the first one restored
			restore(t, f, want[i])
			restore(t, f, want[i])
		}
	}
}
