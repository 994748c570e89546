package disk

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// faultyStore is Raft's three stores in memory. It calls before with the name
// of each operation; a returned error is the operation's error.
type faultyStore struct {
	*raft.InmemStore
	raft.SnapshotStore
	before    func(op string) error
	monotonic bool
}

func newFaultyStore() *faultyStore {
	return &faultyStore{InmemStore: raft.NewInmemStore(), SnapshotStore: raft.NewInmemSnapshotStore(), before: func(string) error { return nil }}
}

func (s *faultyStore) IsMonotonic() bool { return s.monotonic }

func (s *faultyStore) FirstIndex() (uint64, error) {
	if err := s.before("FirstIndex"); err != nil {
		return 0, err
	}
	return s.InmemStore.FirstIndex()
}

func (s *faultyStore) LastIndex() (uint64, error) {
	if err := s.before("LastIndex"); err != nil {
		return 0, err
	}
	return s.InmemStore.LastIndex()
}

func (s *faultyStore) GetLog(index uint64, log *raft.Log) error {
	if err := s.before("GetLog"); err != nil {
		return err
	}
	return s.InmemStore.GetLog(index, log)
}

func (s *faultyStore) StoreLogs(logs []*raft.Log) error {
	if err := s.before("StoreLogs"); err != nil {
		return err
	}
	return s.InmemStore.StoreLogs(logs)
}

func (s *faultyStore) DeleteRange(first, last uint64) error {
	if err := s.before("DeleteRange"); err != nil {
		return err
	}
	return s.InmemStore.DeleteRange(first, last)
}

func (s *faultyStore) Set(key, value []byte) error {
	if err := s.before("Set " + string(key)); err != nil {
		return err
	}
	return s.InmemStore.Set(key, value)
}

func (s *faultyStore) Get(key []byte) ([]byte, error) {
	if err := s.before("Get " + string(key)); err != nil {
		return nil, err
	}
	value, _ := s.InmemStore.Get(key) // the only error is that the key is missing
	return value, nil
}

func (s *faultyStore) SetUint64(key []byte, value uint64) error {
	if err := s.before("Set " + string(key)); err != nil {
		return err
	}
	return s.InmemStore.SetUint64(key, value)
}

func (s *faultyStore) GetUint64(key []byte) (uint64, error) {
	if err := s.before("Get " + string(key)); err != nil {
		return 0, err
	}
	value, _ := s.InmemStore.GetUint64(key)
	return value, nil
}

func (s *faultyStore) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	if err := s.before("Create"); err != nil {
		return nil, err
	}
	sink, err := s.SnapshotStore.Create(version, index, term, c, ci, trans)
	return &faultySink{SnapshotSink: sink, before: s.before}, err
}

func (s *faultyStore) List() ([]*raft.SnapshotMeta, error) {
	if err := s.before("List"); err != nil {
		return nil, err
	}
	return s.SnapshotStore.List()
}

func (s *faultyStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.before("Open"); err != nil {
		return nil, nil, err
	}
	return s.SnapshotStore.Open(id)
}

type faultySink struct {
	raft.SnapshotSink
	before func(string) error
}

func (s *faultySink) Write(p []byte) (int, error) {
	if err := s.before("Write"); err != nil {
		return 0, err
	}
	return s.SnapshotSink.Write(p)
}

func (s *faultySink) Close() error {
	if err := s.before("Close"); err != nil {
		return err
	}
	return s.SnapshotSink.Close()
}

// errSilent represents the call of silence in the tests of failStop.
var errSilent = errors.New("silenced")

// failStopTrio wraps a faultyStore. The channel receives the errors with which
// fatal is called.
func failStopTrio(inner *faultyStore) (*failStopLogs, *failStopVotes, *failStopSnapshots, chan error) {
	told := make(chan error, 10)
	g := newFailStop(maxStoreWait, func() { told <- errSilent }, func(err error) { told <- err })
	return &failStopLogs{inner: inner, failStop: g, path: "/data/log.db"}, &failStopVotes{inner, g, "/data/votes.db"}, &failStopSnapshots{inner: inner, failStop: g, path: "/data/snapshots"}, told
}
