package disk

import (
	"github.com/hashicorp/raft"
)

// guardedVotes is Raft's stable store, guarded. Reading what was never written
// is no error.
type guardedVotes struct {
	inner raft.StableStore
	guard *storeGuard
	path  string
}

var _ raft.StableStore = (*guardedVotes)(nil)

// Set implements raft.StableStore.
func (v *guardedVotes) Set(key, value []byte) error {
	return v.guard.must(v.op("write", key), nil, func() error { return v.inner.Set(key, value) })
}

// Get implements raft.StableStore.
func (v *guardedVotes) Get(key []byte) (value []byte, err error) {
	err = v.guard.must(v.op("read", key), nil, func() error {
		value, err = v.inner.Get(key)
		return err
	})
	return value, err
}

// SetUint64 implements raft.StableStore.
func (v *guardedVotes) SetUint64(key []byte, value uint64) error {
	return v.guard.must(v.op("write", key), nil, func() error { return v.inner.SetUint64(key, value) })
}

// GetUint64 implements raft.StableStore.
func (v *guardedVotes) GetUint64(key []byte) (value uint64, err error) {
	err = v.guard.must(v.op("read", key), nil, func() error {
		value, err = v.inner.GetUint64(key)
		return err
	})
	return value, err
}

func (v *guardedVotes) op(verb string, key []byte) storeOp {
	return storeOp{verb: verb + " " + string(key), path: v.path}
}
