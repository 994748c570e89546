package cell

import (
	"errors"

	"github.com/chubbylock/chubby/api"
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
