package disk

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// TestEntryUnderSnapshotRots: the start does not need an entry that a snapshot covers, even if it
// is the last of the log.
func TestEntryUnderSnapshotRots(t *testing.T) {
	for name, c := range map[string]struct{ rotten, last uint64 }{"the last": {14, 14}, "that of the snapshot": {14, 17}, "one before": {13, 17}} {
		for _, kind := range LogStores() {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				r, err := openCrashReplica(dir, kind, nil)
				if err != nil {
					t.Fatal(err)
				}
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
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
				rotEntry(t, dir, kind, c.rotten)
				if r, err = openCrashReplica(dir, kind, nil); err != nil {
					t.Fatalf("it does not start: %v", err)
				}
				if _, err := r.do(appendStep(4, c.last+1, 20, 20)); err != nil {
					t.Fatal(errors.Join(err, r.stop()))
				}
				testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == 20 })
				if err := errors.Join(r.machine.check(), r.stop()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestRottenEntryEndsNoMaster: a master finds that an entry is damaged which its snapshot covers,
// and which a replica behind it needs. It sends the snapshot to that replica.
func TestRottenEntryEndsNoMaster(t *testing.T) {
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			r, err := openCrashReplica(dir, kind, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.pass(t, appendStep(2, 2, 10, 10), appendStep(3, 11, 14, 14), nil, appendStep(4, 15, 17, 17))
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			rotEntry(t, dir, kind, 13)
			if r, err = openCrashReplica(dir, kind, nil); err != nil {
				t.Fatal(err)
			}
			sent, end := make(chan uint64, 1), make(chan struct{})
			var follower sync.WaitGroup
			follower.Go(func() { r.follow(12, sent, end) })
			if err := r.wire.TimeoutNow("r1", "a1", &raft.TimeoutNowRequest{RPCHeader: crashHeader("r2")}, &raft.TimeoutNowResponse{}); err != nil {
				t.Fatal(err)
			}
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
}

// TestRottenEntryIsToldOf: nothing needs a damaged entry under a snapshot, and Raft treats it as
// compacted. The log still reports the damage, once, and reports nothing for an entry that was
// really compacted.
func TestRottenEntryIsToldOf(t *testing.T) {
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			r, err := openCrashReplica(dir, kind, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.pass(t, appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 14, 14), nil, appendStep(4, 15, 17, 17))
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			rotEntry(t, dir, kind, 13)
			var said strings.Builder
			opts := testStoreOptions()
			opts.Logger = slog.New(slog.NewTextHandler(&said, nil))
			s, err := Open(dir, kind, opts)
			if err != nil {
				t.Fatal(err)
			}
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

// TestLogReachesBackBehindTheNewestSnapshot: a replica starts without its newest snapshot, which is
// damaged, however many entries there are since the one before.
func TestLogReachesBackBehindTheNewestSnapshot(t *testing.T) {
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			r, err := openCrashReplica(dir, kind, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Raft keeps three entries, as crashConf says.
			r.pass(t, appendStep(2, 2, 10, 10), nil, appendStep(3, 11, 14, 14), appendStep(4, 15, 30, 30), nil, appendStep(4, 31, 50, 50), nil)
			if first, err := r.s.rawLogs.FirstIndex(); first != 31 || err != nil {
				t.Errorf("the log begins at %d, %v; want the entry after the snapshot before the newest", first, err)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			newest, err := filepath.Glob(filepath.Join(dir, snapshotsName, "4-50-*"))
			if err != nil || len(newest) != 1 {
				t.Fatalf("snapshots %q, %v", newest, err)
			}
			overwrite("state.bin", "other")(t, newest[0])
			if r, err = openCrashReplica(dir, kind, nil); err != nil {
				t.Fatalf("it does not start: %v", err)
			}
			r.pass(t, appendStep(4, 51, 60, 60))
			if err := errors.Join(r.machine.check(), r.stop()); err != nil {
				t.Error(err)
			}
		})
	}
}

// pass takes the replica through steps, and waits for the entries that each has
// committed.
func (r *crashReplica) pass(t *testing.T, steps ...crashSend) {
	t.Helper()
	for i, step := range steps {
		if _, err := r.do(step); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
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
