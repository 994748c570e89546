package cell

import (
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// entryLog adapts Raft to a master's log.
type entryLog struct {
	raft  *raft.Raft
	sized func(bytes int) // called for each entry, to count
	times *entryTimes
}

func (l entryLog) Append(entry []byte) ([]raftfsm.Result, error) {
	l.sized(len(entry))
	future := l.raft.Apply(entry, 0)
	if err := future.Error(); err != nil {
		return nil, appendError(err)
	}
	l.times.settle(future.Index())
	switch response := future.Response().(type) {
	case []raftfsm.Result:
		return response, nil
	case error:
		if errors.Is(response, disk.ErrEnded) {
			return nil, appendError(response)
		}
		return nil, &api.Error{Code: api.Corrupt, Message: "the entry could not be applied", Err: response}
	}
	return nil, nil
}

// appendError converts an error of raft.Apply. The listed errors come before the entry is appended; after any
// other it may be in the log, and may yet commit.
func appendError(err error) error {
	for _, no := range []error{raft.ErrNotLeader, raft.ErrEnqueueTimeout, raft.ErrLeadershipTransferInProgress} {
		if errors.Is(err, no) {
			return &api.Error{Code: api.NotMaster, Message: "Raft takes no change from this replica, which is not the master any more", Err: err}
		}
	}
	return &api.Error{Code: api.Uncertain, Message: "the change may or may not have been committed; a retry with the same request number finds out", Err: err}
}

// entryTimes has the times of writing and applying the newest entries, for traces and log lines about slow
// calls.
type entryTimes struct {
	mu       sync.Mutex // guards what follows
	appended disk.Appended
	applied  fsm.Applied
	last     steps.Phases // of the newest entry appended by this master and applied
}

func (t *entryTimes) noteAppended(a disk.Appended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.appended = a
}

func (t *entryTimes) noteApplied(a fsm.Applied) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.applied = a
}

// settle records that the entry of that index was applied, for phases. If Raft has written others since, less
// is known.
func (t *entryTimes) settle(index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = steps.Phases{}
	if t.appended.First <= index && index <= t.appended.Last {
		t.last.AppendFrom, t.last.AppendTo = t.appended.From, t.appended.To
	}
	if t.applied.First <= index && index <= t.applied.Last {
		t.last.ApplyFrom, t.last.ApplyTo = t.applied.From, t.applied.To
	}
}

func (t *entryTimes) phases() steps.Phases {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
