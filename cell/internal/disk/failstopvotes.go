package disk

import (
	"github.com/hashicorp/raft"
)

// failStopVotes is Raft's stable store, with a fail-stop. A missing value is no error.
type failStopVotes struct {
	inner    raft.StableStore
	failStop *failStop
	path     string
}

var _ raft.StableStore = (*failStopVotes)(nil)

func (v *failStopVotes) Set(key, value []byte) error {
	return v.failStop.attemptOrExit(v.op("write", key), nil, func() error { return v.inner.Set(key, value) })
}

func (v *failStopVotes) Get(key []byte) (value []byte, err error) {
	err = v.failStop.attemptOrExit(v.op("read", key), nil, func() error {
		value, err = v.inner.Get(key)
		return err
	})
	return value, err
}

func (v *failStopVotes) SetUint64(key []byte, value uint64) error {
	return v.failStop.attemptOrExit(v.op("write", key), nil, func() error { return v.inner.SetUint64(key, value) })
}

func (v *failStopVotes) GetUint64(key []byte) (value uint64, err error) {
	err = v.failStop.attemptOrExit(v.op("read", key), nil, func() error {
		value, err = v.inner.GetUint64(key)
		return err
	})
	return value, err
}

func (v *failStopVotes) op(verb string, key []byte) storeOp {
	return storeOp{verb: verb + " " + string(key), path: v.path}
}
