package disk

import (
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

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
					if err != nil {
						t.Fatal(err)
					}
					do := func(steps ...crashSend) {
						t.Helper()
						for i, step := range steps {
							if _, err := r.do(step); err != nil {
								t.Fatalf("step %d: %v", i, err)
							}
						}
					}
					do(steps...)
					testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == 19 })
					held.came = make(chan struct{})
					r.raft.Snapshot()
					<-held.came
					do(sent...)
					close(held.goOn)
					<-held.done
					if err := r.stop(); err != nil {
						t.Fatalf("it ended: %v", err)
					}
					if r, err = openCrashReplica(dir, kind, nil); err != nil {
						t.Fatalf("it does not start: %v", err)
					}
					do(appendStep(4, 41, 45, 45))
					if err := r.stop(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}
