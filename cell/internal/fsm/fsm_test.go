package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// newMachine returns a state machine that must not end on any entry.
func newMachine(t *testing.T) *fsm.FSM {
	return fsm.New(raftfsm.MaxLevel, func(raftfsm.Roster) {}, func(err error) { t.Error(err) })
}

// logEntry returns an entry of the Raft log, of epoch and term 1.
func logEntry(t *testing.T, index uint64, commands ...raftfsm.Command) *raft.Log {
	t.Helper()
	data := must(raftfsm.Entry{Epoch: 1, Wall: int64(index), Commands: commands}.Encode())(t)
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
}

// newEpoch returns the command that bootstraps the cell.
func newEpoch() raftfsm.Command {
	return raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: raftfsm.MaxLevel}}
}

// createSession returns the command that creates a session.
func createSession(nonce string) raftfsm.Command {
	return raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte(nonce), Lease: 12 * time.Second}}
}

// logEntries returns the log of a bootstrapped cell, with an entry of Raft
// itself in it.
func logEntries(t *testing.T) []*raft.Log {
	return []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration},
		logEntry(t, 2, newEpoch()),
		logEntry(t, 3, createSession("a")),
		logEntry(t, 4, createSession("b"), createSession("c")),
		logEntry(t, 5),
	}
}

// snapshotOf returns a state machine's snapshot, as Raft stores it.
func snapshotOf(t *testing.T, f *fsm.FSM) []byte {
	t.Helper()
	snapshot := must(f.Snapshot())(t)
	return persist(t, snapshot)
}

func persist(t *testing.T, snapshot raft.FSMSnapshot) []byte {
	t.Helper()
	store := raft.NewInmemSnapshotStore()
	sink := must(store.Create(1, 3, 1, raft.Configuration{}, 1, nil))(t)
	noErr(t, snapshot.Persist(sink))
	snapshot.Release()
	_, r, err := store.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	data := must(io.ReadAll(r))(t)
	return data
}

// A batch gives the same results and the same state as its entries one by one, and is published as
// a whole. An entry of Raft itself has no result.
func TestBatches(t *testing.T) {
	log := logEntries(t)
	one, batched := newMachine(t), newMachine(t)
	results := batched.ApplyBatch(log)
	for i, l := range log {
		if l.Type != raft.LogCommand {
			if results[i] != nil {
				t.Errorf("entry %d of Raft has the result %v", l.Index, results[i])
			}
			continue
		}
		alone, _ := one.Apply(l).([]raftfsm.Result)
		together, ok := results[i].([]raftfsm.Result)
		if !ok || len(together) != len(alone) {
			t.Fatalf("entry %d: %v in a batch, %v alone", l.Index, results[i], alone)
		}
		for j := range alone {
			if alone[j].Code() != together[j].Code() || alone[j].Session != together[j].Session {
				t.Errorf("entry %d, command %d: %v in a batch, %v alone", l.Index, j, together[j], alone[j])
			}
		}
		if sum, ok := batched.HistoryAt(l.Index); !ok || sum != one.State().History {
			t.Errorf("after entry %d: the running hash is %d, %v in a batch, %d alone", l.Index, sum, ok, one.State().History)
		}
	}
	if a, b := snapshotOf(t, one), snapshotOf(t, batched); !bytes.Equal(a, b) {
		t.Error("the states differ")
	}
	if n := batched.State().Sessions.Len(); n != 3 {
		t.Errorf("%d sessions", n)
	}
}

// After a snapshot was restored, readers and later snapshots have what was in it, although somebody
// had read the state before, and no entry followed.
func TestRestoredStateIsRead(t *testing.T) {
	log := logEntries(t)
	whole, behind := newMachine(t), newMachine(t)
	whole.ApplyBatch(log)
	behind.ApplyBatch(log[:3])
	before := behind.State()
	restored := snapshotOf(t, whole)
	noErr(t, behind.Restore(io.NopCloser(bytes.NewReader(restored))))
	if n := behind.State().Sessions.Len(); n != 3 || before.Sessions.Len() != 1 {
		t.Errorf("%d sessions are read, and %d were before; want 3 and 1", n, before.Sessions.Len())
	}
	if !bytes.Equal(snapshotOf(t, behind), restored) {
		t.Error("the next snapshot is of another state than the one that was restored")
	}
}

// A replica whose state nobody reads changes it in place, also after a snapshot was restored; one
// whose state is read copies what changes.
func TestUnreadStateIsNotCopied(t *testing.T) {
	allocations := func(read, restored bool) float64 {
		f := newMachine(t)
		index := uint64(1)
		f.Apply(logEntry(t, index, newEpoch()))
		if restored {
			noErr(t, f.Restore(io.NopCloser(bytes.NewReader(snapshotOf(t, f)))))
		}
		return testing.AllocsPerRun(100, func() {
			index++
			f.Apply(logEntry(t, index, createSession(fmt.Sprint(index))))
			if read {
				f.State()
			}
		})
	}
	read := allocations(true, false)
	for _, restored := range []bool{false, true} {
		if unread := allocations(false, restored); unread > read-20 {
			t.Errorf("an entry takes %v allocations (restored: %v), and %v if the state is read", unread, restored, read)
		}
	}
}

// An entry that cannot be read ends the replica, and no later entry is applied; there is no
// snapshot of such a state.
func TestUnreadableEntryIsFatal(t *testing.T) {
	var fatal []error
	f := fsm.New(raftfsm.MaxLevel, func(raftfsm.Roster) {}, func(err error) { fatal = append(fatal, err) })
	results := f.ApplyBatch([]*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration},
		{Index: 2, Term: 1, Type: raft.LogCommand, Data: []byte("garbage")},
		logEntry(t, 3, newEpoch()),
	})
	if len(results) != 3 || len(fatal) != 1 || !errors.Is(fatal[0], api.Corrupt) || f.State().Epoch != 0 {
		t.Errorf("results %v, fatal %v, epoch %d", results, fatal, f.State().Epoch)
	}
	if err, _ := results[2].(error); !errors.Is(err, api.Corrupt) {
		t.Errorf("the entry after it has the result %v", results[2])
	}
	if _, err := f.Snapshot(); !errors.Is(err, api.Corrupt) {
		t.Errorf("a snapshot is taken: %v", err)
	}
}

// An entry that raises the cell to a level that the replica does not know ends the replica.
func TestEntryOfANewerVersionIsFatal(t *testing.T) {
	newer := newEpoch()
	newer.NewEpoch.Level = raftfsm.MaxLevel + 1
	var fatal []error
	f := fsm.New(raftfsm.MaxLevel, func(raftfsm.Roster) {}, func(err error) { fatal = append(fatal, err) })
	err, _ := f.Apply(logEntry(t, 1, newer)).(error)
	if !errors.Is(err, raftfsm.ErrNewer) || len(fatal) != 1 || !errors.Is(fatal[0], raftfsm.ErrNewer) || f.State().Epoch != 0 {
		t.Errorf("it is applied: %v; fatal %v, epoch %d", err, fatal, f.State().Epoch)
	}
}

// A snapshot that is damaged, or of a level that the replica does not know,
// changes nothing. A damaged one is an error, after which Raft tries another;
// an unknown level ends the replica.
func TestUnreadableSnapshot(t *testing.T) {
	whole := func(level int) []byte {
		state := raftfsm.NewState()
		state.Level = level
		var data bytes.Buffer
		must(state.WriteTo(&data))(t)
		return data.Bytes()
	}
	damaged := whole(raftfsm.MaxLevel)
	damaged = damaged[:len(damaged)-1]
	for _, c := range []struct {
		name  string
		data  []byte
		fatal int
	}{
		{"of a newer version", whole(raftfsm.MaxLevel + 1), 1},
		{"damaged", damaged, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fatal []error
			f := fsm.New(raftfsm.MaxLevel, func(raftfsm.Roster) {}, func(err error) { fatal = append(fatal, err) })
			f.ApplyBatch(logEntries(t))
			before := f.State()
			if err := f.Restore(io.NopCloser(bytes.NewReader(c.data))); !errors.Is(err, api.Corrupt) {
				t.Errorf("it is restored: %v", err)
			}
			if len(fatal) != c.fatal || f.State() != before {
				t.Errorf("fatal %v, and the state changed: %v", fatal, f.State() != before)
			}
		})
	}
}

// After a snapshot the running hash continues as it would have without one. The hashes from before
// the snapshot are no longer known.
func TestHistoryContinues(t *testing.T) {
	whole, restored := newMachine(t), newMachine(t)
	whole.ApplyBatch(logEntries(t))
	restored.ApplyBatch(logEntries(t)[:4])
	noErr(t, restored.Restore(io.NopCloser(bytes.NewReader(snapshotOf(t, whole)))))
	for _, f := range []*fsm.FSM{whole, restored} {
		f.Apply(logEntry(t, 6))
	}
	for _, index := range []uint64{5, 6} {
		a, aok := whole.HistoryAt(index)
		b, bok := restored.HistoryAt(index)
		if a != b || !aok || !bok {
			t.Errorf("after entry %d: %d, %v; and with a snapshot %d, %v", index, a, aok, b, bok)
		}
	}
	for _, index := range []uint64{0, 4, 7} {
		if _, ok := restored.HistoryAt(index); ok {
			t.Errorf("it knows the running hash after entry %d", index)
		}
	}
}

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
	noErr(t, f.Restore(io.NopCloser(bytes.NewReader(snapshot))))
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
			snapshot := must(f.Snapshot())(t)
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

// The checks of testbed, for the tests of this package.

func must[T any](value T, err error) func(testbed.TB) T { return testbed.Must(value, err) }
func noErr(t testbed.TB, err error, what ...any)        { t.Helper(); testbed.NoErr(t, err, what...) }
