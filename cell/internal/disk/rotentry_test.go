package disk

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// TestEntryUnderSnapshotRots: the start does not need an entry that a snapshot covers, even if it
// is the last of the log.
func TestEntryUnderSnapshotRots(t *testing.T) {
	for name, c := range map[string]struct{ rotten, last uint64 }{"the last": {14, 14}, "that of the snapshot": {14, 17}, "one before": {13, 17}} {
		for _, kind := range LogStores() {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				r := testbed.Must(openCrashReplica(dir, kind, nil))(t)
				steps := []crashSend{appendStep(2, 2, 10, 10), appendStep(3, 11, 13, 13), appendStep(3, 14, 14, 14), nil}
				if c.last > 14 {
					steps = append(steps, appendStep(4, 15, c.last, 14))
				}
				for i, step := range steps {
					if _, err := r.do(step); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
					testbed.Await(t, "entries that are applied", func() bool { return i < 2 || r.raft.AppliedIndex() == 14 })
				}
				testbed.NoErr(t, r.stop())
				rotEntry(t, dir, kind, c.rotten)
				r = testbed.Must(openCrashReplica(dir, kind, nil))(t)
				if _, err := r.do(appendStep(4, c.last+1, 20, 20)); err != nil {
					t.Fatal(errors.Join(err, r.stop()))
				}
				testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == 20 })
				testbed.Report(t, errors.Join(r.machine.check(), r.stop()))
			})
		}
	}
}

// TestRottenEntryEndsNoMaster: a master finds that an entry is damaged which its snapshot covers,
// and which a replica behind it needs. It sends the snapshot to that replica.
func TestRottenEntryEndsNoMaster(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		r := testbed.Must(openCrashReplica(dir, kind, nil))(t)
		r.pass(t, appendStep(2, 2, 10, 10), appendStep(3, 11, 14, 14), nil, appendStep(4, 15, 17, 17))
		testbed.NoErr(t, r.stop())
		rotEntry(t, dir, kind, 13)
		r = testbed.Must(openCrashReplica(dir, kind, nil))(t)
		sent, end := make(chan uint64, 1), make(chan struct{})
		var follower sync.WaitGroup
		follower.Go(func() { r.follow(12, sent, end) })
		testbed.NoErr(t, r.wire.TimeoutNow("r1", "a1", &raft.TimeoutNowRequest{RPCHeader: crashHeader("r2")}, &raft.TimeoutNowResponse{}))
		testbed.Await(t, "a snapshot that is sent", func() bool { return len(sent) > 0 || r.s.failStop.failure() != nil })
		if err := r.stop(); err != nil {
			t.Errorf("it ended: %v", err)
		} else if index := <-sent; index != 14 {
			t.Errorf("the snapshot of entry %d was sent", index)
		}
		close(end)
		follower.Wait()
	})
}

// TestRottenEntryIsToldOf: nothing needs a damaged entry under a snapshot, and Raft treats it as
// compacted. The log still reports the damage, once, and reports nothing for an entry that was
// really compacted.
func TestRottenEntryIsToldOf(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		r := testbed.Must(openCrashReplica(dir, kind, nil))(t)
		r.pass(t, appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 14, 14), nil, appendStep(4, 15, 17, 17))
		testbed.NoErr(t, r.stop())
		rotEntry(t, dir, kind, 13)
		var said strings.Builder
		opts := testStoreOptions()
		opts.Logger = slog.New(slog.NewTextHandler(&said, nil))
		s := testbed.Must(Open(dir, kind, opts))(t)
		defer mustClose(t, s)
		for _, index := range []uint64{13, 1, 13} {
			if err := s.logs.GetLog(index, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d: %v", index, err)
			}
		}
		if n := strings.Count(said.String(), "is damaged"); n != 1 || !strings.Contains(said.String(), "index=13") {
			t.Errorf("%d lines of damage in:\n%s", n, &said)
		}
	})
}

// follow imitates a follower that votes for the replica and whose log ends at last, until end. It
// reports the first snapshot that it gets.
func (r *crashReplica) follow(last uint64, sent chan<- uint64, end <-chan struct{}) {
	for {
		select {
		case rpc := <-r.wire.Consumer():
			switch q := rpc.Command.(type) {
			case *raft.RequestVoteRequest:
				rpc.Respond(&raft.RequestVoteResponse{Term: q.Term, Granted: true}, nil)
			case *raft.AppendEntriesRequest:
				rpc.Respond(&raft.AppendEntriesResponse{Term: q.Term, LastLog: last, Success: q.PrevLogEntry <= last, NoRetryBackoff: true}, nil)
			case *raft.InstallSnapshotRequest:
				_, err := io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&raft.InstallSnapshotResponse{Term: q.Term, Success: true}, err)
				select {
				case sent <- q.LastLogIndex:
				default:
				}
				last = q.LastLogIndex
			}
		case <-end:
			return
		}
	}
}

// take takes the replica through steps.
func (r *crashReplica) take(t *testing.T, steps ...crashSend) {
	t.Helper()
	for i, step := range steps {
		if _, err := r.do(step); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

// pass takes the replica through steps, and waits for the entries that each has
// committed.
func (r *crashReplica) pass(t *testing.T, steps ...crashSend) {
	t.Helper()
	for _, step := range steps {
		r.take(t, step)
		last := r.raft.LastIndex()
		testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == last })
	}
}

// rotEntry flips a bit in the data of an entry.
func rotEntry(t *testing.T, dir string, kind LogStore, index uint64) {
	t.Helper()
	data := string(crashEntry(index, crashTruth(index)).Data)
	log := storeOf(t, kind).path
	for path, text := range filesOf(t, dir) {
		rel := strings.TrimPrefix(path, dir)[1:]
		if rel != log && filepath.Dir(rel) != log || !strings.Contains(string(text), data) {
			continue
		}
		rotten := []byte(data)
		rotten[len(rotten)-1] ^= 1
		overwrite(rel, strings.ReplaceAll(string(text), data, string(rotten)))(t, dir)
		return
	}
	t.Fatalf("entry %d, %q, is in no file", index, data)
}

// TestLogChecksum: an entry is read as it was written, the writer's own copy
// does not change, and any change of the stored bytes is noticed.
func TestLogChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := newFaultyStore()
		l, _, _, told := failStopTrio(inner)
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
		testbed.NoErr(t, l.StoreLog(log))
		if !reflect.DeepEqual(before, *log) {
			t.Fatalf("the writer's entry became %+v", *log)
		}
		var back raft.Log
		if err := l.GetLog(log.Index, &back); err != nil || !reflect.DeepEqual(back, before) {
			t.Fatalf("%+v came back as %+v, %v", before, back, err)
		}

		var stored raft.Log
		testbed.NoErr(t, inner.memory.GetLog(log.Index, &stored))
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
		case what == 5: // an entry in the place of another
			moved := damaged
			moved.Index++
			testbed.NoErr(t, inner.memory.StoreLog(&moved))
			at++
		default:
			damaged.Extensions[rapid.IntRange(0, len(damaged.Extensions)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		if at == log.Index {
			testbed.NoErr(t, inner.memory.StoreLog(&damaged))
		}
		if err := l.failStop.callOnGoroutine(func() error { return l.GetLog(at, &back) }); api.CodeOf(err) != api.Corrupt {
			t.Fatalf("stored %+v, damaged to %+v: %v", stored, damaged, err)
		}
		if err := <-told; api.CodeOf(err) != api.Corrupt {
			t.Fatalf("fatal was called with %v", err)
		}
	})
}

// TestEntryThatCannotBeReadIsNotWritten: if a batch has an entry above the
// limit, no entry of it is written, and the replica ends with a message that
// says what to do. A leader's ends before Raft sends it, else all would end.
func TestEntryThatCannotBeReadIsNotWritten(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			inner := newFaultyStore()
			logs, _, told := pendingOn(inner)
			if !leads {
				logs.leads.Store(nil)
			}
			if err := logs.failStop.callOnGoroutine(func() error {
				return logs.StoreLogs([]*raft.Log{{Index: 1, Data: make([]byte, MaxLogEntry-sealSize)}}) // plus the mark and the checksum
			}); err != nil {
				t.Fatal(err)
			}
			err := logs.failStop.callOnGoroutine(func() error {
				return logs.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3, Data: make([]byte, MaxLogEntry-sealSize+1)}})
			})
			if !errors.Is(err, api.TooLarge) || !strings.Contains(err.Error(), "nothing was written") {
				t.Errorf("an entry above the limit: %v", err)
			}
			if last, err := inner.memory.LastIndex(); err != nil || last != 1 {
				t.Errorf("the log ends at %d (%v); want 1: nothing of that batch", last, err)
			}
			select {
			case <-told:
			default:
				t.Error("the replica did not end")
			}
		})
	}
}
