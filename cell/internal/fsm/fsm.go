package fsm

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// FSM gives a State to Raft. Raft calls Apply, ApplyBatch, Snapshot and Restore
// from one goroutine; State may be called from any.
type FSM struct {
	now       raftfsm.State // only Raft's goroutine touches it
	published atomic.Pointer[raftfsm.State]
	known     int // the highest feature level that the replica knows
	fatal     func(error)
	broken    error // an entry could not be read: nothing after it may be applied
	trail     trail
}

var _ raft.BatchingFSM = (*FSM)(nil)

// New returns a state machine that holds nothing yet, of a replica that knows feature
// levels up to known, which is raftfsm.MaxLevel outside of tests. fatal is called when an
// entry cannot be read (once), or a snapshot of another version: the replica must stop, for
// it cannot follow its cell. fatal may return, and then no further entry is applied.
func New(known int, fatal func(error)) *FSM {
	f := &FSM{now: raftfsm.NewState(), known: known, fatal: fatal}
	f.publish()
	return f
}

// State returns the state after the last batch that was applied. Everything
// whose result was returned by Raft is in it.
func (f *FSM) State() *raftfsm.State { return f.published.Load() }

func (f *FSM) publish() {
	now := f.now
	f.published.Store(&now)
}

// Apply applies one log entry; its result is a []raftfsm.Result, or an error.
func (f *FSM) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies log entries, publishes the state, and returns a result for
// each: a []raftfsm.Result for a command, an error for one that cannot be read.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	results := make([]any, len(logs))
	for i, log := range logs {
		if log.Type == raft.LogCommand {
			results[i] = f.apply(log)
		}
	}
	f.publish()
	return results
}

func (f *FSM) apply(log *raft.Log) any {
	if f.broken != nil {
		return f.broken
	}
	results, err := f.now.ApplyData(log.Index, log.Term, log.Data, f.known)
	if err != nil {
		f.broken = fmt.Errorf("apply log entry %d of term %d: %w", log.Index, log.Term, err)
		f.fatal(f.broken)
		return f.broken
	}
	f.trail.add(log.Index, f.now.History)
	return results
}

// Snapshot takes a snapshot in constant time.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	return stateSnapshot{*f.State()}, nil
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
	f.now = state
	f.trail.clear()
	f.trail.add(state.Applied, state.History)
	f.publish()
	return nil
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
