// Package fsm gives the replicated state (package raftfsm) to Raft, and the state that
// there is to everyone else.
//
// # Goroutines and locks
//
// Raft calls Apply, ApplyBatch, Snapshot and Restore from one goroutine, which alone
// changes the state; Persist runs in another. State and HistoryAt are for any goroutine.
// The room has no goroutine, and one lock: it is held while a batch is applied and while a
// snapshot of the state is taken, which all readers get until the next one. Nothing but
// package raftfsm, and what OnCheckPoint was given, is called with it held.
package fsm

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// FSM gives a State to Raft. Raft calls Apply, ApplyBatch, Snapshot and Restore
// from one goroutine; State may be called from any.
type FSM struct {
	known  int // the highest feature level that the replica knows
	fatal  func(error)
	roster func(raftfsm.Roster)
	trail  trail

	reached func(CheckPoint) // nil if nobody wants to know
	clock   session.Clock
	applied func(Applied) // nil if nobody counts

	wanted atomic.Bool // somebody has read the state since the last batch

	configured atomic.Uint64 // the index of the last entry that has changed Raft's configuration

	mu        sync.Mutex                    // guards the fields below
	now       raftfsm.State                 // changed in place, so that only what is read is copied
	published atomic.Pointer[raftfsm.State] // now, as of the last batch; nil if nobody has read it since. mu guards stores alone
	broken    error                         // an entry could not be read: nothing after it may be applied
}

var _ raft.BatchingFSM = (*FSM)(nil)

// New returns a state machine that holds nothing yet, of a replica that knows feature
// levels up to known, which is raftfsm.MaxLevel outside of tests. fatal is called when an
// entry cannot be read (once), or a snapshot of another version: the replica must stop, for
// it cannot follow its cell. fatal may return, and then no further entry is applied. roster is called with
// the roster when a batch of entries has changed it: after the whole batch, and before Raft answers for any of them.
func New(known int, roster func(raftfsm.Roster), fatal func(error)) *FSM {
	f := &FSM{now: raftfsm.NewState(), known: known, roster: roster, fatal: fatal}
	f.now.Edit()
	return f
}

// State returns the state after the last batch that was applied. Everything whose result was
// returned by Raft is in it. A batch is published when it has been applied if somebody has read the
// state before it, as on a master, and then no reader waits. Else the first reader publishes it, and
// waits for a batch that is being applied; so a replica whose state nobody reads copies nothing.
func (f *FSM) State() *raftfsm.State {
	if !f.wanted.Load() {
		f.wanted.Store(true)
	}
	if state := f.published.Load(); state != nil {
		return state
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.publish()
}

// Configured returns the index of the last entry that was applied here and has changed Raft's configuration; 0 if there was none. Entries
// that came with a snapshot do not count.
func (f *FSM) Configured() uint64 { return f.configured.Load() }

// publish returns the state that is published, and publishes it if none is. f.mu is held.
func (f *FSM) publish() *raftfsm.State {
	if state := f.published.Load(); state != nil {
		return state
	}
	state := f.now.Snapshot()
	f.published.Store(&state)
	return &state
}

// Applied is that entries were applied.
type Applied struct {
	First, Last uint64 // their indexes
	From, To    session.Instant
}

// OnApplied has applied called when a batch has been applied. OnApplied is to be called before
// Raft starts.
func (f *FSM) OnApplied(clock session.Clock, applied func(Applied)) {
	f.clock, f.applied = clock, applied
}

// Apply applies one log entry; its result is a []raftfsm.Result, or an error.
func (f *FSM) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies log entries, and returns a result for each: a []raftfsm.Result for a command,
// an error for one that cannot be read.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	was := f.now.Roster.Version // this goroutine alone changes it
	var began session.Instant
	if f.applied != nil {
		began = f.clock()
	}
	results, broke := f.applyAll(logs)
	if f.applied != nil {
		f.applied(Applied{First: logs[0].Index, Last: logs[len(logs)-1].Index, From: began, To: f.clock()})
	}
	if broke != nil {
		f.fatal(broke)
	}
	if now := f.now.Roster; now.Version != was {
		f.roster(now)
	}
	return results
}

// applyAll also returns the error of an entry that could not be read, which is the first one.
func (f *FSM) applyAll(logs []*raft.Log) (results []any, broke error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	results, was := make([]any, len(logs)), f.broken
	for i, log := range logs {
		switch log.Type {
		case raft.LogCommand:
			results[i] = f.apply(log)
		case raft.LogConfiguration:
			f.configured.Store(log.Index)
		}
	}
	f.published.Store(nil) // those who read until now had the state before
	if f.wanted.Swap(false) {
		f.publish()
	}
	if was == nil {
		broke = f.broken
	}
	return results, broke
}

// apply applies one entry. f.mu is held.
func (f *FSM) apply(log *raft.Log) any {
	if f.broken != nil {
		return f.broken
	}
	results, err := f.now.ApplyData(log.Index, log.Term, log.Data, f.known)
	if err != nil {
		f.broken = fmt.Errorf("apply log entry %d of term %d: %w", log.Index, log.Term, err)
		return f.broken
	}
	f.trail.add(log.Index, f.now.History)
	if len(results) == 0 && f.reached != nil {
		f.reached(CheckPoint{Index: log.Index, Term: log.Term, State: f.now.Snapshot()})
	}
	return results
}

// Snapshot takes a snapshot in constant time.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, f.broken
	}
	return stateSnapshot{*f.publish()}, nil
}

// Restore replaces the state by the one in a snapshot. If it cannot be read the
// state stays as it was; if that is because a version wrote it that this one cannot
// follow, the replica must stop.
func (f *FSM) Restore(from io.ReadCloser) error {
	state, err := raftfsm.ReadState(from, f.known)
	if err = errors.Join(err, from.Close()); err != nil {
		if errors.Is(err, raftfsm.ErrNewer) || errors.Is(err, raftfsm.ErrUnreleased) {
			f.fatal(err)
		}
		return err
	}
	f.replace(state)
	if state.Roster.Version > 0 {
		f.roster(state.Roster)
	}
	return nil
}

// replace puts another state in the place of the present one.
func (f *FSM) replace(state raftfsm.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = state
	//mutant: /* nothing */ //by TestUnreadStateIsNotCopied of ./cell/internal/fsm
	f.now.Edit()
	f.trail.clear()
	f.trail.add(state.Applied, state.History)
	//mutant: /* nothing */ //by TestRestoredStateIsRead of ./cell/internal/fsm
	f.published.Store(nil)
}

type stateSnapshot struct{ state raftfsm.State }

// Persist writes the snapshot while entries go on being applied.
func (s stateSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := s.state.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release does nothing: a snapshot holds no resource but memory.
func (s stateSnapshot) Release() {}

// CheckPoint is an entry of the log without a command. It changes nothing: it is where every replica hashes its whole state,
// so that these can be compared. All versions apply such an entry, so it needs no feature level.
type CheckPoint struct {
	Index, Term uint64        // of the entry
	State       raftfsm.State // after it; a snapshot, which costs nothing but what is changed later
}

// OnCheckPoint has reached called when a check point has been applied. It must not block, nor call the FSM: its lock
// is held. OnCheckPoint is to be called before Raft starts.
func (f *FSM) OnCheckPoint(reached func(CheckPoint)) { f.reached = reached }

// trailLength is after how many of the latest entries the running hash is kept:
// replicas are rarely further apart than this.
const trailLength = 4096

// trail is the running hash after each of the latest entries, by which replicas
// find out that they have applied different ones. One goroutine writes it, any may
// read it.
type trail struct{ steps [trailLength]step }

// step is the running hash after one entry. While it changes its index is 0.
type step struct{ index, sum atomic.Uint64 }

func (t *trail) add(index, sum uint64) {
	s := &t.steps[index%trailLength]
	s.index.Store(0)
	s.sum.Store(sum)
	s.index.Store(index)
}

func (t *trail) at(index uint64) (sum uint64, ok bool) {
	s := &t.steps[index%trailLength]
	before := s.index.Load()
	sum = s.sum.Load()
	return sum, index != 0 && before == index && s.index.Load() == index
}

// clear forgets everything: the state was replaced.
func (t *trail) clear() {
	for i := range t.steps {
		t.steps[i].index.Store(0)
	}
}

// HistoryAt returns the running hash of all entries up to that index, as
// raftfsm.State.History was after it. ok is false if that entry is not one of the latest
// applied here. Replicas with other hashes at the same index have applied other
// entries, or made something else of them. It is for any goroutine.
func (f *FSM) HistoryAt(index uint64) (sum uint64, ok bool) { return f.trail.at(index) }
