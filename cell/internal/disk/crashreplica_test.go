package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// crashMachine is a state machine that records every entry.
type crashMachine struct {
	mu      sync.Mutex
	Applied [][2]uint64 // index and term
}

func (m *crashMachine) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Applied = append(m.Applied, [2]uint64{l.Index, l.Term})
	return nil
}

func (m *crashMachine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := json.Marshal(m)
	return crashState(text), err
}

func (m *crashMachine) Restore(from io.ReadCloser) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Applied = nil
	return errors.Join(json.NewDecoder(from).Decode(m), from.Close())
}

// last returns the last entry that was applied, 0 if none was.
func (m *crashMachine) last() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.Applied) == 0 {
		return 0
	}
	return m.Applied[len(m.Applied)-1][0]
}

// check returns an error for an entry that the cell has not committed.
func (m *crashMachine) check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range m.Applied {
		if want := uint64(i) + 2; a != [2]uint64{want, crashTruth(want)} {
			return fmt.Errorf("applied entry %d of term %d, want %d of %d", a[0], a[1], want, crashTruth(want))
		}
	}
	return nil
}

type crashState []byte

func (s crashState) Persist(sink raft.SnapshotSink) error {
	_, err := sink.Write(s)
	return errors.Join(err, sink.Close())
}

func (s crashState) Release() {}

// crashReplica is a follower to which the steps are sent.
type crashReplica struct {
	s       *Stores
	raft    *raft.Raft
	machine *crashMachine
	wire    *raft.InmemTransport // to it
}

func crashConf() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = "r1"
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = time.Hour, time.Hour, time.Hour // so that Raft does nothing by itself
	conf.SnapshotInterval, conf.TrailingLogs = time.Hour, 3
	conf.Logger = hclog.NewNullLogger()
	return conf
}

// openCrashReplica starts a replica. If c is not nil, it records the operations.
func openCrashReplica(dir string, kind LogStore, c *crashCamera) (*crashReplica, error) {
	return openCrashReplicaOn(dir, kind, func(s *Stores) error {
		if c == nil {
			return nil
		}
		noted, ok := s.rawLogs.(*notedLog)
		if !ok {
			return fmt.Errorf("the log is a %T", s.rawLogs)
		}
		noted.logFiles = cameraFiles{noted.logFiles, c}
		logs := &failStopLogs{inner: cameraLogs{s.rawLogs, c}, failStop: s.failStop, mark: &s.mark}
		var err error
		s.logs, err = raft.NewLogCache(logCacheEntries, logs)
		s.stable = &failStopVotes{inner: cameraVotes{s.rawVotes, c}, failStop: s.failStop}
		s.snapshots = &failStopSnapshots{inner: cameraSnaps{s.rawSnaps, c}, failStop: s.failStop, mark: &s.mark}
		return err
	})
}

// openCrashReplicaOn starts a replica on its stores, after equip has changed
// them.
func openCrashReplicaOn(dir string, kind LogStore, equip func(*Stores) error) (*crashReplica, error) {
	var failed error
	_, wire := raft.NewInmemTransportWithTimeout("a2", time.Minute)
	opts := testStoreOptions()
	opts.Fatal = func(err error) {
		failed = err
		wire.DisconnectAll() // else a step would wait for an answer
	}
	s, err := Open(dir, kind, opts)
	if err != nil {
		return nil, err
	}
	if err := equip(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	_, own := raft.NewInmemTransportWithTimeout("a1", time.Minute)
	wire.Connect("a1", own)
	own.Connect("a2", wire)
	r := &crashReplica{s: s, machine: &crashMachine{}, wire: wire}
	if !s.who.Get().Begun {
		me := s.who.Get()
		all := &identity.Roster{CellID: "c", Members: []identity.Member{{ID: "r1", Raft: "a1", Incarnation: me.Incarnation}, {ID: "r2", Raft: "a2", Incarnation: "i2"}, {ID: "r3", Raft: "a3", Incarnation: "i3"}}}
		if me.Roster == nil {
			err = s.who.Store(all, false)
		}
		if err == nil {
			err = s.Bootstrap(crashConf(), own)
		}
	}
	if err == nil {
		r.raft, err = s.StartRaft(crashConf(), r.machine, own)
	}
	if err != nil {
		return nil, errors.Join(err, failed, s.Close())
	}
	return r, nil
}

func (r *crashReplica) stop() error {
	return errors.Join(r.raft.Shutdown().Error(), r.s.failStop.failure(), r.s.Close())
}

func (r *crashReplica) do(step crashSend) (acked uint64, err error) {
	if step != nil {
		return step(r.wire)
	}
	// AppliedIndex may be ahead of the machine, and a snapshot has only what the machine applied.
	for r.machine.last() < r.raft.AppliedIndex() {
		testbed.Pass(time.Millisecond)
	}
	if err := r.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return 0, err
	}
	return 0, nil
}

// whole returns an error for a log with a gap, or with an entry below the newest snapshot that the
// cell has replaced: the replica would send it on once it is elected.
func (r *crashReplica) whole() error {
	first, err := r.s.rawLogs.FirstIndex()
	last, err2 := r.s.rawLogs.LastIndex()
	for index := max(first, 1); err == nil && index <= last; index++ {
		var entry raft.Log
		if err = readLog(r.s.rawLogs, index, &entry); err == nil && index <= r.s.mark.snapshotIndex() && entry.Term != crashTruth(index) {
			err = fmt.Errorf("entry %d is of term %d, which a snapshot has overtaken", index, entry.Term)
		}
	}
	return errors.Join(err, err2)
}

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
