package disk

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// pendingOn returns the log and the votes of a replica that leads, on stores in memory.
func pendingOn(inner *faultyStore) (*pendingLogs, *failStopVotes, chan error) {
	l, v, _, told := failStopTrio(inner)
	p := &pendingLogs{failStopLogs: l}
	leads := func() bool { return true }
	p.leads.Store(&leads)
	v.drain = p.drain
	return p, v, told
}

// While a write of commands is under way, StoreLogs has returned, and they are read from memory. Whatever else is written waits for them, and so
// does the state machine; what became pending meanwhile is stored in one step.
func TestWritesWaitForPendingEntries(t *testing.T) {
	configuration := []*raft.Log{{Index: 6, Term: 1, Type: raft.LogConfiguration}}
	for name, do := range map[string]func(*pendingLogs, *failStopVotes){
		"a term":                   func(_ *pendingLogs, v *failStopVotes) { _ = v.SetUint64([]byte(currentTermKey), 2) },
		"a vote":                   func(_ *pendingLogs, v *failStopVotes) { _ = v.Set([]byte(voteCandidateKey), []byte("r2")) },
		"an entry without command": func(l *pendingLogs, _ *failStopVotes) { _ = l.StoreLogs(configuration) },
		"an entry of another leader": func(l *pendingLogs, _ *failStopVotes) {
			l.leads.Store(nil)
			_ = l.StoreLogs(crashBatch(6, 6, 1))
		},
		"a deletion":     func(l *pendingLogs, _ *failStopVotes) { _ = l.DeleteRange(1, 1) },
		"the last index": func(l *pendingLogs, _ *failStopVotes) { _, _ = l.LastIndex() },
		"the state machine": func(l *pendingLogs, _ *failStopVotes) {
			appliesStored{&raft.MockFSM{}, l}.ApplyBatch(crashBatch(1, 5, 1))
		},
		"an entry above the bound": func(l *pendingLogs, _ *failStopVotes) {
			_ = l.StoreLogs(crashBatch(6, 6+maxPending, 1))
			_ = l.StoreLogs(crashBatch(7+maxPending, 7+maxPending, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFaultyStore()
				l, v, _ := pendingOn(inner)
				var mu sync.Mutex
				var order []string
				writes := make(chan struct{})
				inner.before = func(op string) error {
					if op == "StoreLogs" {
						<-writes
					}
					mu.Lock()
					defer mu.Unlock()
					order = append(order, op)
					return nil
				}
				testbed.NoErr(t, l.StoreLogs(crashBatch(1, 1, 1)))
				synctest.Wait()
				testbed.NoErr(t, l.StoreLogs(crashBatch(2, 3, 1)))
				testbed.NoErr(t, l.StoreLogs(crashBatch(4, 5, 1)))
				var read raft.Log
				if err := l.GetLog(4, &read); err != nil || read.Index != 4 || l.storedUpTo(9) != 0 {
					t.Errorf("entry 4: %+v, %v; stored up to %d", read, err, l.storedUpTo(9))
				}
				done := false
				go func() {
					do(l, v)
					mu.Lock()
					defer mu.Unlock()
					done = true
				}()
				synctest.Wait()
				if writes <- struct{}{}; done {
					t.Error("it did not wait")
				}
				synctest.Wait()
				close(writes)
				synctest.Wait()
				if i := slices.Index(order, "StoreLogs"); !done || !slices.Equal(order[i:i+3], []string{"StoreLogs", "LastIndex", "StoreLogs"}) {
					t.Errorf("done: %v, after %q", done, order)
				}
				if last, err := inner.memory.LastIndex(); err != nil || last < 5 || l.storedUpTo(5) != 5 {
					t.Errorf("the log ends at %d (%v), and is stored up to %d", last, err, l.storedUpTo(5))
				}
			})
		})
	}
}

// A write of pending entries that fails ends the replica: nothing is applied, and no term is written.
func TestPendingWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		l, v, told := pendingOn(inner)
		var after []string
		failed := false
		inner.before = func(op string) error {
			if op == "StoreLogs" {
				failed = true
				return syscall.ENOSPC
			}
			if failed {
				after = append(after, op)
			}
			return nil
		}
		applied := &raft.MockFSM{}
		var waiting sync.WaitGroup
		testbed.NoErr(t, l.StoreLogs(crashBatch(1, 2, 1)))
		waiting.Go(func() {
			if results := (appliesStored{applied, l}).ApplyBatch(crashBatch(1, 2, 1)); !slices.Equal(results, []any{ErrEnded, ErrEnded}) {
				t.Errorf("the state machine answered %v", results)
			}
		})
		waiting.Go(func() { _ = v.SetUint64([]byte(currentTermKey), 2); t.Error("Raft went on") })
		waiting.Wait()
		if err := <-told; err == nil || len(applied.Logs()) > 0 || len(after) > 0 {
			t.Errorf("ended with %v; applied %d entries, then did %q", err, len(applied.Logs()), after)
		}
	})
}

// The stores close when the write of pending entries has ended, also if something else on the disk has failed meanwhile.
func TestCloseWaitsForPendingEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		l, _, _ := pendingOn(inner)
		inner.before = func(op string) error {
			if op == "StoreLogs" {
				testbed.Pass(20 * time.Millisecond)
			}
			return nil
		}
		s := &Stores{pending: l, failStop: l.failStop}
		testbed.NoErr(t, l.StoreLogs(crashBatch(1, 1, 1)))
		synctest.Wait()
		full := l.failStop.attempt(storeOp{verb: "write a snapshot"}, 1, nil, func() error { return syscall.ENOSPC })
		if err := s.Close(); err != nil || !errors.Is(full, syscall.ENOSPC) {
			t.Errorf("closed: %v, after %v", err, full)
		}
	})
}

// A disk is slow and has not stalled: each of two writes takes most of the time that it may take. Close waits for both.
func TestCloseWaitsForASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		l, _, told := pendingOn(inner)
		inner.before = func(op string) error {
			if op == "StoreLogs" {
				testbed.Pass(l.failStop.stall * 2 / 3)
			}
			return nil
		}
		testbed.NoErr(t, l.StoreLogs(crashBatch(1, 1, 1)))
		synctest.Wait()
		testbed.NoErr(t, l.StoreLogs(crashBatch(2, 2, 1)))
		testbed.NoErr(t, (&Stores{pending: l, failStop: l.failStop}).Close())
		if last, err := inner.memory.LastIndex(); err != nil || last != 2 || len(told) > 0 {
			t.Errorf("the log ends at %d (%v), and the replica has ended: %v", last, err, len(told) > 0)
		}
	})
}
