package disk

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// pendingLogs is Raft's log. While this replica leads, it writes commands in the background, and Raft sends them to
// the other replicas meanwhile. A change then takes the longer of two syncs, and not both, one after the other.
//
// Raft counts an entry as stored when StoreLogs returns. All that it concludes too early rests on one thing: this
// process completes the write in the same term. Either it does, or the process has ended, and what it concluded is
// gone with it. So only what leaves the process, and what is written after the entry, must wait (docs/adr/0051):
//
//   - The state machine applies no pending entry (appliesStored). So nobody is answered, and no read, event,
//     check point or snapshot has its effect.
//   - No message and no commit mark says that a pending entry is committed (Stores.Stored).
//   - A term, a vote, an entry that is no command, another leader's entry and a deletion are written after it.
//
// It is safe for concurrent use.
type pendingLogs struct {
	*failStopLogs
	leads atomic.Pointer[func() bool] // whether this replica leads; nil until Raft runs

	work sync.WaitGroup // the goroutine that writes, while entries are pending

	mu      sync.Mutex    // guards the fields below
	pending []*raft.Log   // handed over and not stored, in order
	stored  chan struct{} // closed when the next of them are stored; nil if none is pending
}

// maxPending is how many entries may be pending before StoreLogs waits. Raft's cache holds more, so that it rarely asks
// for one of them.
const maxPending = 64

// StoreLogs implements raft.LogStore. It may return before commands of this leader are stored; see pendingLogs. Only
// Raft's main goroutine calls it, which alone makes this replica the leader, or ends that.
func (l *pendingLogs) StoreLogs(logs []*raft.Log) error {
	isNoCommand := func(e *raft.Log) bool { return e.Type != raft.LogCommand }
	mustWait := slices.ContainsFunc(logs, isNoCommand) || checkSize(logs) != nil // else each replica would end that it is sent to
	//mutant: if leads := l.leads.Load(); leads == nil || mustWait {
	if leads := l.leads.Load(); leads == nil || !(*leads)() || mustWait {
		//mutant: _ = l.drain
		l.drain()
		return l.failStopLogs.StoreLogs(logs)
	}
	if l.isFull() {
		l.drain()
	}
	if l.failStop.failure() != nil {
		runtime.Goexit() // as failStopLogs does
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending = append(l.pending, logs...); l.stored == nil {
		l.stored = make(chan struct{})
		l.work.Go(l.write)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (l *pendingLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// write stores the pending entries, all that it finds in one step, until all are stored. An error ends its goroutine.
func (l *pendingLogs) write() {
	for more := true; more; {
		l.mu.Lock()
		batch := l.pending
		l.mu.Unlock()
		_ = l.failStopLogs.StoreLogs(batch) // it returns nil, or not at all
		more = l.noteStored(len(batch))
	}
}

// noteStored takes entries that are stored out of the pending ones, and reports whether others are pending.
func (l *pendingLogs) noteStored(n int) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.Clone(l.pending[n:])
	close(l.stored)
	if l.stored = nil; len(l.pending) > 0 {
		l.stored = make(chan struct{})
	}
	return len(l.pending) > 0
}

// GetLog implements raft.LogStore. Raft's cache forgets its entries when others are deleted.
func (l *pendingLogs) GetLog(index uint64, log *raft.Log) error {
	if e := l.find(index); e != nil {
		*log = *e
		return nil
	}
	return l.failStopLogs.GetLog(index, log)
}

func (l *pendingLogs) find(index uint64) *raft.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 || index < l.pending[0].Index || index > l.pending[len(l.pending)-1].Index {
		return nil
	}
	return l.pending[index-l.pending[0].Index]
}

// LastIndex implements raft.LogStore. The first index needs no wait: of a leader's term, an entry that is no command is stored.
func (l *pendingLogs) LastIndex() (uint64, error) {
	l.drain()
	return l.failStopLogs.LastIndex()
}

// DeleteRange implements raft.LogStore.
func (l *pendingLogs) DeleteRange(first, last uint64) error {
	l.drain()
	return l.failStopLogs.DeleteRange(first, last)
}

func (l *pendingLogs) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) >= maxPending
}

// storedUpTo returns the lower of index and the index up to which no entry is pending.
func (l *pendingLogs) storedUpTo(index uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		return min(index, l.pending[0].Index-1)
	}
	return index
}

// drain waits until the entries that are pending now are stored. If the log fails, it ends its goroutine: see failStop.
func (l *pendingLogs) drain() {
	l.mu.Lock()
	var last uint64
	if n := len(l.pending); n > 0 {
		last = l.pending[n-1].Index
	}
	l.mu.Unlock()
	if !l.areStored(last) {
		runtime.Goexit()
	}
}

// areStored waits until no entry up to that index is pending, or the log has failed.
func (l *pendingLogs) areStored(index uint64) bool {
	for {
		l.mu.Lock()
		stored, isPending := l.stored, len(l.pending) > 0 && l.pending[0].Index <= index
		l.mu.Unlock()
		if !isPending {
			return true
		}
		select {
		case <-stored:
		case <-l.failStop.ended:
			return false
		}
	}
}

// appliesStored is a state machine that applies no pending entry. If the log fails, it applies nothing more, and its
// results are ErrEnded: Raft would not answer for a goroutine that has ended.
type appliesStored struct {
	raft.FSM
	logs *pendingLogs
}

var _ raft.BatchingFSM = appliesStored{}

// ErrEnded is the result of an entry that is not applied because the log has failed. It may be committed.
var ErrEnded = errors.New("the log of this replica has failed")

// Apply implements raft.FSM.
func (f appliesStored) Apply(log *raft.Log) any {
	if !f.logs.areStored(log.Index) {
		return ErrEnded
	}
	return f.FSM.Apply(log)
}

// ApplyBatch implements raft.BatchingFSM.
func (f appliesStored) ApplyBatch(logs []*raft.Log) []any {
	if !f.logs.areStored(logs[len(logs)-1].Index) {
		return slices.Repeat([]any{ErrEnded}, len(logs))
	}
	if batching, ok := f.FSM.(raft.BatchingFSM); ok {
		return batching.ApplyBatch(logs)
	}
	results := make([]any, len(logs))
	for i, log := range logs {
		if log.Type == raft.LogCommand { // as Raft does
			results[i] = f.FSM.Apply(log)
		}
	}
	return results
}
