package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// crashPoint is a data directory as a kill leaves it, and what the replica had
// acknowledged.
type crashPoint struct {
	after string // the last operation
	dir   string
	step  int    // the step during which it happened
	acked uint64 // the last entry that was acknowledged
	term  uint64
}

// crashCamera keeps a copy of a data directory after each of Raft's operations on it.
type crashCamera struct {
	t      *testing.T
	dir    string
	points []crashPoint
	acked  uint64
	step   int
	term   uint64
}

func (c *crashCamera) shoot(what string, err error) error {
	if err != nil {
		return err
	}
	p := crashPoint{after: what, dir: filepath.Join(c.t.TempDir(), "data"), step: c.step, acked: c.acked, term: c.term}
	c.points = append(c.points, p)
	return os.CopyFS(p.dir, os.DirFS(c.dir))
}

type cameraLogs struct {
	raft.LogStore
	c *crashCamera
}

func (l cameraLogs) IsMonotonic() bool {
	m, ok := l.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (l cameraLogs) StoreLogs(logs []*raft.Log) error {
	return l.c.shoot(fmt.Sprintf("append %d to %d", logs[0].Index, logs[len(logs)-1].Index), l.LogStore.StoreLogs(logs))
}

func (l cameraLogs) DeleteRange(first, last uint64) error {
	return l.c.shoot(fmt.Sprintf("delete %d to %d", first, last), l.LogStore.DeleteRange(first, last))
}

// cameraFiles also copies before and after each change of the log itself; the note of the log's end
// is written before or after that change.
type cameraFiles struct {
	logFiles
	c *crashCamera
}

func (l cameraFiles) StoreLogs(logs []*raft.Log) error {
	return l.around(fmt.Sprintf("append %d to %d", logs[0].Index, logs[len(logs)-1].Index), func() error { return l.logFiles.StoreLogs(logs) })
}

func (l cameraFiles) DeleteRange(first, last uint64) error {
	return l.around(fmt.Sprintf("delete %d to %d", first, last), func() error { return l.logFiles.DeleteRange(first, last) })
}

func (l cameraFiles) around(what string, do func() error) error {
	if err := l.c.shoot("what comes before "+what, nil); err != nil {
		return err
	}
	return l.c.shoot(what+", in the log alone", do())
}

type cameraVotes struct {
	raft.StableStore
	c *crashCamera
}

func (v cameraVotes) Set(key, value []byte) error {
	return v.c.shoot("set "+string(key), v.StableStore.Set(key, value))
}

func (v cameraVotes) SetUint64(key []byte, value uint64) error {
	return v.c.shoot("set "+string(key), v.StableStore.SetUint64(key, value))
}

type cameraSnaps struct {
	raft.SnapshotStore
	c *crashCamera
}

func (s cameraSnaps) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	return cameraSink{sink, s.c}, s.c.shoot(fmt.Sprintf("create snapshot %d", index), err)
}

type cameraSink struct {
	raft.SnapshotSink
	c *crashCamera
}

func (s cameraSink) Write(p []byte) (int, error) {
	n, err := s.SnapshotSink.Write(p)
	return n, s.c.shoot("write snapshot", err)
}

func (s cameraSink) Close() error { return s.c.shoot("finish snapshot", s.SnapshotSink.Close()) }
