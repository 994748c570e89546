package disk

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// faultyStore is Raft's three stores in memory. before is called with the name
// of each operation, and what it returns is that operation's error.
type faultyStore struct {
	*raft.InmemStore
	raft.SnapshotStore
	before    func(op string) error
	monotonic bool
}

func newFaultyStore() *faultyStore {
	return &faultyStore{InmemStore: raft.NewInmemStore(), SnapshotStore: raft.NewInmemSnapshotStore(), before: func(string) error { return nil }}
}

func (s *faultyStore) IsMonotonic() bool { return s.monotonic }

func (s *faultyStore) FirstIndex() (uint64, error) {
	if err := s.before("FirstIndex"); err != nil {
		return 0, err
	}
	return s.InmemStore.FirstIndex()
}

func (s *faultyStore) LastIndex() (uint64, error) {
	if err := s.before("LastIndex"); err != nil {
		return 0, err
	}
	return s.InmemStore.LastIndex()
}

func (s *faultyStore) GetLog(index uint64, log *raft.Log) error {
	if err := s.before("GetLog"); err != nil {
		return err
	}
	return s.InmemStore.GetLog(index, log)
}

func (s *faultyStore) StoreLogs(logs []*raft.Log) error {
	if err := s.before("StoreLogs"); err != nil {
		return err
	}
	return s.InmemStore.StoreLogs(logs)
}

func (s *faultyStore) DeleteRange(first, last uint64) error {
	if err := s.before("DeleteRange"); err != nil {
		return err
	}
	return s.InmemStore.DeleteRange(first, last)
}

func (s *faultyStore) Set(key, value []byte) error {
	if err := s.before("Set " + string(key)); err != nil {
		return err
	}
	return s.InmemStore.Set(key, value)
}

func (s *faultyStore) Get(key []byte) ([]byte, error) {
	if err := s.before("Get " + string(key)); err != nil {
		return nil, err
	}
	value, _ := s.InmemStore.Get(key) // its only error is that nothing is there
	return value, nil
}

func (s *faultyStore) SetUint64(key []byte, value uint64) error {
	if err := s.before("Set " + string(key)); err != nil {
		return err
	}
	return s.InmemStore.SetUint64(key, value)
}

func (s *faultyStore) GetUint64(key []byte) (uint64, error) {
	if err := s.before("Get " + string(key)); err != nil {
		return 0, err
	}
	value, _ := s.InmemStore.GetUint64(key)
	return value, nil
}

func (s *faultyStore) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	if err := s.before("Create"); err != nil {
		return nil, err
	}
	sink, err := s.SnapshotStore.Create(version, index, term, c, ci, trans)
	return &faultySink{SnapshotSink: sink, before: s.before}, err
}

func (s *faultyStore) List() ([]*raft.SnapshotMeta, error) {
	if err := s.before("List"); err != nil {
		return nil, err
	}
	return s.SnapshotStore.List()
}

func (s *faultyStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.before("Open"); err != nil {
		return nil, nil, err
	}
	return s.SnapshotStore.Open(id)
}

type faultySink struct {
	raft.SnapshotSink
	before func(string) error
}

func (s *faultySink) Write(p []byte) (int, error) {
	if err := s.before("Write"); err != nil {
		return 0, err
	}
	return s.SnapshotSink.Write(p)
}

func (s *faultySink) Close() error {
	if err := s.before("Close"); err != nil {
		return err
	}
	return s.SnapshotSink.Close()
}

// errSilent is what the tests of the guard are told when it silences the replica.
var errSilent = errors.New("silenced")

// guardedTrio guards a faultyStore. What fatal is told arrives at the channel.
func guardedTrio(inner *faultyStore) (*guardedLogs, *guardedVotes, *guardedSnapshots, chan error) {
	told := make(chan error, 10)
	g := newStoreGuard(storeStall, func() { told <- errSilent }, func(err error) { told <- err })
	return &guardedLogs{inner: inner, guard: g, path: "/data/log.db"}, &guardedVotes{inner, g, "/data/votes.db"}, &guardedSnapshots{inner: inner, guard: g, path: "/data/snapshots"}, told
}

// TestStoreErrorIsFatal: every operation's first error is reported once, with
// the file, the operation and advice; nothing is attempted after it; and the
// log and the votes never let their caller go on.
func TestStoreErrorIsFatal(t *testing.T) {
	entry := []*raft.Log{{Index: 1, Term: 1, Data: []byte("x")}, {Index: 2, Term: 1}}
	sink := func(s *guardedSnapshots) raft.SnapshotSink {
		sink, err := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Error(err)
		}
		return sink
	}
	type do func(*guardedLogs, *guardedVotes, *guardedSnapshots) error
	for op, c := range map[string]struct {
		do       do
		file     string
		returned bool // the error comes back
	}{
		"FirstIndex": {do: func(l *guardedLogs, _ *guardedVotes, _ *guardedSnapshots) error { _, err := l.FirstIndex(); return err }, file: "log.db"},
		"LastIndex":  {do: func(l *guardedLogs, _ *guardedVotes, _ *guardedSnapshots) error { _, err := l.LastIndex(); return err }, file: "log.db"},
		"GetLog":     {do: func(l *guardedLogs, _ *guardedVotes, _ *guardedSnapshots) error { return l.GetLog(1, &raft.Log{}) }, file: "read log entry 1 in /data/log.db"},
		"StoreLogs":  {do: func(l *guardedLogs, _ *guardedVotes, _ *guardedSnapshots) error { return l.StoreLogs(entry) }, file: "append log entries 1 to 2 in /data/log.db"},
		"DeleteRange": {do: func(l *guardedLogs, _ *guardedVotes, _ *guardedSnapshots) error {
			return cmp.Or(l.StoreLogs(entry), l.DeleteRange(1, 2)) // of an empty log nothing is deleted
		}, file: "log.db"},
		"Set CurrentTerm": {do: func(_ *guardedLogs, v *guardedVotes, _ *guardedSnapshots) error {
			return v.SetUint64([]byte("CurrentTerm"), 1)
		}, file: "write CurrentTerm in /data/votes.db"},
		"Set LastVoteCand": {do: func(_ *guardedLogs, v *guardedVotes, _ *guardedSnapshots) error {
			return v.Set([]byte("LastVoteCand"), nil)
		}, file: "votes.db"},
		"Get CurrentTerm": {do: func(_ *guardedLogs, v *guardedVotes, _ *guardedSnapshots) error {
			_, err := v.GetUint64([]byte("CurrentTerm"))
			return err
		}, file: "votes.db"},
		"Get LastVoteCand": {do: func(_ *guardedLogs, v *guardedVotes, _ *guardedSnapshots) error {
			_, err := v.Get([]byte("LastVoteCand"))
			return err
		}, file: "votes.db"},
		"List": {do: func(_ *guardedLogs, _ *guardedVotes, s *guardedSnapshots) error { _, err := s.List(); return err }, file: "snapshots", returned: true},
		"Open": {do: func(_ *guardedLogs, _ *guardedVotes, s *guardedSnapshots) error { _, _, err := s.Open("x"); return err }, file: "snapshots", returned: true},
		"Create": {do: func(_ *guardedLogs, _ *guardedVotes, s *guardedSnapshots) error {
			_, err := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
			return err
		}, file: "snapshots", returned: true},
		"Write": {do: func(_ *guardedLogs, _ *guardedVotes, s *guardedSnapshots) error {
			_, err := sink(s).Write([]byte("x"))
			return err
		}, file: "snapshots", returned: true},
		"Close": {do: func(_ *guardedLogs, _ *guardedVotes, s *guardedSnapshots) error { return sink(s).Close() }, file: "snapshots", returned: true},
	} {
		for cause, advice := range map[error]string{
			syscall.ENOSPC:                     "disk is full",
			syscall.EIO:                        "do not trust it",
			syscall.EROFS:                      "read-only",
			syscall.EACCES:                     "permission",
			errors.New("something else"):       "see the cause",
			api.Errorf(api.Corrupt, "bit rot"): "majority",
		} {
			inner := newFaultyStore()
			l, v, s, told := guardedTrio(inner)
			began := 0
			inner.before = func(name string) error {
				if name != op {
					return nil
				}
				began++
				return cause
			}
			returned := false
			err := l.guard.call(func() error {
				err := c.do(l, v, s)
				returned = true
				return err
			})
			if returned != c.returned {
				t.Errorf("%s: %v: returned %v, want %v", op, cause, returned, c.returned)
			}
			if !errors.Is(err, cause) || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), advice) {
				t.Errorf("%s: %v: %q, want %q and %q in it", op, cause, err, c.file, advice)
			}
			if err := l.guard.call(func() error { return l.StoreLogs(entry) }); !errors.Is(err, cause) {
				t.Errorf("%s: %v: a write after it: %v", op, cause, err)
			}
			if began > 1 {
				t.Errorf("%s: %v: attempted again", op, cause)
			}
			if len(told) != 1 || !errors.Is(<-told, cause) {
				t.Errorf("%s: %v: fatal was not told exactly once", op, cause)
			}
		}
	}
}

// TestMissingIsNotFatal: what is not there is an answer.
func TestMissingIsNotFatal(t *testing.T) {
	l, v, s, told := guardedTrio(newFaultyStore())
	if err := l.GetLog(7, &raft.Log{}); err != raft.ErrLogNotFound { //nolint:errorlint // raft compares so
		t.Errorf("GetLog: %v", err)
	}
	if _, err := v.Get([]byte("LastVoteCand")); err != nil {
		t.Errorf("Get: %v", err)
	}
	sink, err := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sink.Write([]byte("state"))
	if err := errors.Join(err, sink.Close()); err != nil {
		t.Fatal(err)
	}
	_, r, err := s.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := io.ReadAll(r); err != nil || string(state) != "state" {
		t.Errorf("the snapshot reads %q, %v", state, err)
	}
	if len(told) != 0 {
		t.Errorf("fatal was told %v", <-told)
	}
}

// TestStorePanicIsFatal: bbolt reports a damaged page by a panic.
func TestStorePanicIsFatal(t *testing.T) {
	inner := newFaultyStore()
	l, _, _, told := guardedTrio(inner)
	inner.before = func(string) error { panic("page 7: bad magic") }
	if err := l.guard.call(func() error { return l.GetLog(1, &raft.Log{}) }); api.CodeOf(err) != api.Corrupt {
		t.Errorf("%v, want Corrupt", err)
	}
	if err := <-told; !strings.Contains(err.Error(), "bad magic") {
		t.Errorf("fatal was told %v", err)
	}
}

// TestLogMonotonic: Raft empties the log when it has installed a snapshot, whatever
// the store, so it has to hear of it through both wrappers.
func TestLogMonotonic(t *testing.T) {
	for _, monotonic := range []bool{false, true} {
		inner := newFaultyStore()
		inner.monotonic = monotonic
		l, _, _, _ := guardedTrio(inner)
		cache, err := raft.NewLogCache(10, l)
		if err != nil {
			t.Fatal(err)
		}
		if !raft.LogStore(cache).(raft.MonotonicLogStore).IsMonotonic() {
			t.Errorf("raft hears false, the store says %v", monotonic)
		}
	}
}

// TestLogChecksum: an entry comes back as it was written, the writer's own is
// left alone, and any change of what is stored is noticed.
func TestLogChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := newFaultyStore()
		l, _, _, told := guardedTrio(inner)
		some := rapid.SliceOfN(rapid.Byte(), 0, 20)
		log := &raft.Log{
			Index: rapid.Uint64Range(1, 5).Draw(t, "index"), Term: rapid.Uint64().Draw(t, "term"),
			Type: raft.LogType(rapid.IntRange(0, 5).Draw(t, "type")), Data: some.Draw(t, "data"), Extensions: some.Draw(t, "extensions"),
			AppendedAt: time.Unix(1, 2),
		}
		if len(log.Extensions) == 0 {
			log.Extensions = nil
		}
		before := *log
		before.Data, before.Extensions = bytes.Clone(log.Data), bytes.Clone(log.Extensions)
		if err := l.StoreLog(log); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, *log) {
			t.Fatalf("the writer's entry became %+v", *log)
		}
		var back raft.Log
		if err := l.GetLog(log.Index, &back); err != nil || !reflect.DeepEqual(back, before) {
			t.Fatalf("%+v came back as %+v, %v", before, back, err)
		}

		var stored raft.Log
		if err := inner.InmemStore.GetLog(log.Index, &stored); err != nil {
			t.Fatal(err)
		}
		damaged := stored
		damaged.Data, damaged.Extensions = bytes.Clone(stored.Data), bytes.Clone(stored.Extensions)
		at := log.Index
		switch what := rapid.IntRange(0, 6).Draw(t, "damage"); {
		case what == 0:
			damaged.Term ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
		case what == 1:
			damaged.Type ^= 1
		case what == 2 && len(damaged.Data) > 0:
			damaged.Data[rapid.IntRange(0, len(damaged.Data)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case what == 3:
			damaged.Data = append(damaged.Data, 0)
		case what == 4:
			damaged.Extensions = damaged.Extensions[:rapid.IntRange(0, len(damaged.Extensions)-1).Draw(t, "cut")]
		case what == 5: // an entry in another's place
			moved := damaged
			moved.Index++
			if err := inner.InmemStore.StoreLog(&moved); err != nil {
				t.Fatal(err)
			}
			at++
		default:
			damaged.Extensions[rapid.IntRange(0, len(damaged.Extensions)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		if at == log.Index {
			if err := inner.InmemStore.StoreLog(&damaged); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.guard.call(func() error { return l.GetLog(at, &back) }); api.CodeOf(err) != api.Corrupt {
			t.Fatalf("stored %+v, damaged to %+v: %v", stored, damaged, err)
		}
		if err := <-told; api.CodeOf(err) != api.Corrupt {
			t.Fatalf("fatal was told %v", err)
		}
	})
}

// misdirectedStore reads entry 1 wherever it is asked to: the disk wrote it
// there too.
type misdirectedStore struct{ *faultyStore }

func (s misdirectedStore) GetLog(_ uint64, log *raft.Log) error { return s.InmemStore.GetLog(1, log) }

// TestLogInAnothersPlace: a whole entry, with its checksum, in the wrong place.
func TestLogInAnothersPlace(t *testing.T) {
	inner := newFaultyStore()
	l, _, _, _ := guardedTrio(inner)
	if err := l.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	l.inner = misdirectedStore{inner}
	if err := l.guard.call(func() error { return l.GetLog(2, &raft.Log{}) }); api.CodeOf(err) != api.Corrupt {
		t.Errorf("%v, want Corrupt", err)
	}
}

// TestWatchdog: an operation that does not come back silences the replica
// first and then ends it, after the limit and not before; and should it come
// back, its caller does not go on.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		l, v, s, told := guardedTrio(inner)
		disk := make(chan struct{})
		inner.before = func(string) error {
			<-disk
			return syscall.EIO
		}
		began := time.Now()
		returned := false
		var work sync.WaitGroup
		work.Go(func() {
			_ = l.guard.call(func() error {
				err := l.StoreLogs([]*raft.Log{{Index: 1}})
				returned = true
				return err
			})
		})
		if first := <-told; !errors.Is(first, errSilent) {
			t.Errorf("first came %v, want silence", first)
		}
		if took := time.Since(began); took != storeStall {
			t.Errorf("noticed after %v, want %v", took, storeStall)
		}
		if err := <-told; !strings.Contains(err.Error(), "the disk stalled") || !strings.Contains(err.Error(), "append log entry 1 in /data/log.db") {
			t.Errorf("fatal was told %v", err)
		}
		if l.guard.active.Load() != 1 {
			t.Error("the hanging operation does not count as active: its file would be closed")
		}
		if err := v.guard.call(func() error { return v.Set([]byte("LastVoteCand"), nil) }); err == nil {
			t.Error("a vote was written to a stalled disk")
		}
		close(disk)
		work.Wait()
		if returned {
			t.Error("the caller went on after the replica was declared dead")
		}
		if _, err := s.List(); err == nil {
			t.Error("snapshots go on after the replica was declared dead")
		}
		testbed.Pass(time.Minute)
		if len(told) != 0 {
			t.Errorf("fatal was told again: %v", <-told)
		}
	})
}

// TestStoreErrorStopsRaftQuietly: wherever a store fails, Raft ends without a
// panic, acknowledges nothing more, and can be shut down.
func TestStoreErrorStopsRaftQuietly(t *testing.T) {
	for _, op := range []string{"StoreLogs", "Set CurrentTerm", "Set LastVoteTerm", "Set LastVoteCand", "GetLog", "Get LastVoteTerm"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFaultyStore()
				l, v, s, told := guardedTrio(inner)
				conf := raft.DefaultConfig()
				conf.LocalID = "r1"
				conf.Logger = hclog.NewNullLogger()
				_, wire := raft.NewInmemTransport("a")
				st := &Stores{logs: l, stable: v, snapshots: s, guard: l.guard, rawLogs: inner, rawVotes: inner, rawSnaps: inner, who: preparedAlone(t)}
				if err := st.Bootstrap(conf, wire); err != nil {
					t.Fatal(err)
				}
				words := &testbed.Words{}
				r, err := st.StartRaft(conf, words, wire)
				if err != nil {
					t.Fatal(err)
				}
				testbed.Await(t, "a leader", func() bool { return r.State() == raft.Leader })
				if err := r.Apply([]byte("fine"), 5*time.Second).Error(); err != nil {
					t.Fatal(err)
				}
				inner.before = func(name string) error {
					if name == op {
						return syscall.EIO
					}
					return nil
				}
				provoke(r, wire)
				if err := <-told; !errors.Is(err, syscall.EIO) {
					t.Errorf("fatal was told %v", err)
				}
				if err := r.Apply([]byte("too late"), time.Second).Error(); err == nil {
					t.Error("a write was acknowledged after the store had failed")
				}
				if err := r.Shutdown().Error(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// provoke makes Raft write its log, raise its term, and look at its vote.
func provoke(r *raft.Raft, wire *raft.InmemTransport) {
	_ = r.Apply([]byte("write"), time.Second) // its answer is not waited for: the store may fail it
	peer := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("r1"), Addr: []byte("b")}
	_, other := raft.NewInmemTransport("b")
	other.Connect("a", wire)
	_ = other.AppendEntries("r1", "a", &raft.AppendEntriesRequest{RPCHeader: peer, Term: r.CurrentTerm() + 1, PrevLogEntry: 1, PrevLogTerm: 1}, &raft.AppendEntriesResponse{}) // may fail: that is the point
	_ = other.RequestVote("r1", "a", &raft.RequestVoteRequest{RPCHeader: peer, Term: r.CurrentTerm() + 5, LastLogIndex: 100, LastLogTerm: 100, LeadershipTransfer: true}, &raft.RequestVoteResponse{})
	_ = other.Close()
}

// TestStartReportsStoreError: what fails while Raft starts is an error of the
// start.
func TestStartReportsStoreError(t *testing.T) {
	inner := newFaultyStore()
	l, v, s, _ := guardedTrio(inner)
	inner.before = func(name string) error {
		if name == "Set CurrentTerm" {
			return syscall.ENOSPC
		}
		return nil
	}
	conf := raft.DefaultConfig()
	conf.LocalID = "r1"
	conf.Logger = hclog.NewNullLogger()
	_, wire := raft.NewInmemTransport("a")
	st := &Stores{logs: l, stable: v, snapshots: s, guard: l.guard, rawLogs: inner, rawVotes: inner, rawSnaps: inner, who: preparedAlone(t)}
	if r, err := st.StartRaft(conf, &testbed.Words{}, wire); r != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("startRaft: %v, %v", r, err)
	}
	if err := st.Bootstrap(conf, wire); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("bootstrap: %v", err)
	}
}

// TestEntryThatCannotBeReadIsNotWritten: of a batch with an entry above the limit
// nothing is written, and the replica ends with a message that says what to do.
func TestEntryThatCannotBeReadIsNotWritten(t *testing.T) {
	inner := newFaultyStore()
	logs, _, _, told := guardedTrio(inner)
	logs.limit = 1000
	if err := logs.guard.call(func() error {
		return logs.StoreLogs([]*raft.Log{{Index: 1, Data: make([]byte, 988)}}) // with the mark and the checksum
	}); err != nil {
		t.Fatal(err)
	}
	err := logs.guard.call(func() error {
		return logs.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3, Data: make([]byte, 989)}})
	})
	if !errors.Is(err, api.TooLarge) || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("an entry above the limit: %v", err)
	}
	if last, err := inner.InmemStore.LastIndex(); err != nil || last != 1 {
		t.Errorf("the log ends at %d (%v); want 1: nothing of that batch", last, err)
	}
	select {
	case <-told:
	default:
		t.Error("the replica did not end")
	}
}
