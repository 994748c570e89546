package disk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// TestCommittedEntriesStay: entries that a replica knows to be committed leave
// its log only when they are in a snapshot, also after a restart.
func TestCommittedEntriesStay(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot    uint64 // 0: none
		begin       uint64 // of the log, if it is not 1
		commit      uint64 // as Raft knows it when the entries are written, or later
		first, last uint64
		refused     string // in the error; empty: deleted
		again       bool   // the replica must be restarted
	}{
		"a suffix that is not committed":       {commit: 5, first: 6, last: 9},
		"a suffix that is, partly":             {commit: 5, first: 5, last: 9, refused: "those up to 5 were committed"},
		"a suffix that is, wholly":             {commit: 9, first: 7, last: 9, refused: "those up to 9 were committed"},
		"a suffix below the snapshot":          {snapshot: 6, commit: 3, first: 6, last: 9, refused: "those up to 6 were committed"},
		"a prefix in the snapshot":             {snapshot: 6, commit: 9, first: 1, last: 4},
		"a prefix beyond the snapshot":         {snapshot: 3, commit: 9, first: 1, last: 4, refused: "are in no snapshot", again: true},
		"everything, after a newer snapshot":   {snapshot: 20, commit: 9, first: 1, last: 9},
		"everything, after an older snapshot":  {snapshot: 6, commit: 9, first: 1, last: 9, refused: "are in no snapshot", again: true},
		"everything behind the snapshot":       {snapshot: 6, begin: 7, commit: 9, first: 7, last: 9, refused: "those up to 9 were committed"},
		"everything, of which part was no use": {snapshot: 6, commit: 6, first: 1, last: 9, again: true},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", name, restart), func(t *testing.T) {
				dir := t.TempDir()
				var told error
				open := func() *Stores {
					opts := testStoreOptions()
					opts.Fatal = func(err error) { told = err }
					s := testbed.Must(Open(dir, BoltStore, opts))(t)
					t.Cleanup(func() { mustClose(t, s) })
					return s
				}
				s := open()
				testbed.NoErr(t, s.who.Store(rosterAlone(s.who.Get()), true))
				testbed.NoErr(t, s.stable.SetUint64([]byte(currentTermKey), 1))
				testbed.NoErr(t, s.logs.StoreLogs(crashBatch(1, 8, 1)))
				s.mark.followRaft(func() uint64 { return c.commit }) // the last entry is stored with it
				testbed.NoErr(t, s.logs.StoreLogs(crashBatch(9, 9, 1)))
				if c.snapshot != 0 {
					takeSnapshot(t, s, c.snapshot)
				}
				if c.begin > 1 {
					testbed.NoErr(t, s.rawLogs.DeleteRange(1, c.begin-1))
				}
				if restart && c.snapshot < 9 { // otherwise it would not read its log
					mustClose(t, s)
					s = open()
				}
				err := s.failStop.callOnGoroutine(func() error { return s.logs.DeleteRange(c.first, c.last) })
				if c.refused == "" {
					if left, err := s.rawLogs.LastIndex(); left >= c.last && c.first > 1 || err != nil {
						t.Errorf("the log ends at %d: %v", left, err)
					}
					if !errors.Is(err, told) || c.again != errors.Is(told, errRestart) || !c.again && told != nil {
						t.Fatalf("refused: %v, %v", err, told)
					}
					return
				}
				if errors.Is(told, identity.ErrRefused) == c.again || errors.Is(told, errRestart) != c.again || !strings.Contains(told.Error(), c.refused) {
					t.Errorf("the replica was ended with %v; want %q", told, c.refused)
				}
				var left raft.Log
				if err := readLog(s.rawLogs, c.first, &left); err != nil {
					t.Errorf("entry %d: %v", c.first, err)
				}
			})
		}
	}
}

// heldCompaction delays one deletion.
type heldCompaction struct {
	raft.LogStore
	came, goOn, done chan struct{}
}

// IsMonotonic implements raft.MonotonicLogStore.
func (l *heldCompaction) IsMonotonic() bool { return true }

// DeleteRange implements raft.LogStore.
func (l *heldCompaction) DeleteRange(first, last uint64) error {
	select {
	case l.came <- struct{}{}:
		<-l.goOn
		defer close(l.done) // also if this goroutine is ended
	default:
	}
	return l.LogStore.DeleteRange(first, last)
}

// TestSnapshotArrivesDuringCompaction: a replica compacts its log behind its
// own snapshot, on a separate goroutine. Meanwhile Raft's main goroutine
// empties the log for a snapshot of the master. The entries to be deleted are
// gone then: that is not an error, and the next start does not miss them.
func TestSnapshotArrivesDuringCompaction(t *testing.T) {
	steps := []crashSend{appendStep(2, 2, 10, 10), appendStep(3, 11, 14, 14), nil, appendStep(4, 15, 19, 19)}
	for at, hold := range map[string]func(h *heldCompaction, s *Stores) raft.LogStore{
		"before it was allowed": func(h *heldCompaction, s *Stores) raft.LogStore {
			h.LogStore = &failStopLogs{inner: s.rawLogs, failStop: s.failStop, mark: &s.mark}
			return h
		},
		"after it was allowed": func(h *heldCompaction, s *Stores) raft.LogStore {
			h.LogStore = s.rawLogs
			return &failStopLogs{inner: h, failStop: s.failStop, mark: &s.mark}
		},
	} {
		for then, sent := range map[string][]crashSend{"": {installStep(4, 40)}, ", entries follow": {installStep(4, 40), appendStep(4, 41, 43, 43)}} {
			for _, kind := range LogStores() {
				t.Run(string(kind)+", "+at+then, func(t *testing.T) {
					t.Parallel()
					dir := filepath.Join(t.TempDir(), "data")
					held := &heldCompaction{goOn: make(chan struct{}), done: make(chan struct{})}
					r, err := openCrashReplicaOn(dir, kind, func(s *Stores) (err error) {
						s.logs, err = raft.NewLogCache(logCacheEntries, hold(held, s))
						return err
					})
					testbed.NoErr(t, err)
					r.take(t, steps...)
					testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == 19 })
					held.came = make(chan struct{})
					r.raft.Snapshot()
					<-held.came
					r.take(t, sent...)
					close(held.goOn)
					<-held.done
					testbed.NoErr(t, r.stop(), "it ended:")
					r = testbed.Must(openCrashReplica(dir, kind, nil))(t)
					r.take(t, appendStep(4, 41, 45, 45))
					testbed.Report(t, r.stop())
				})
			}
		}
	}
}
