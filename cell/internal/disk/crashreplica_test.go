package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// crashMachine is a state machine that remembers every entry.
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

// check reports an entry that is not the one that the cell has committed.
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

// crashReplica is a follower that does what the steps say.
type crashReplica struct {
	s       *Stores
	raft    *raft.Raft
	machine *crashMachine
	wire    *raft.InmemTransport // to it
}

func crashConf() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = "r1"
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = time.Hour, time.Hour, time.Hour // it is told what to do
	conf.SnapshotInterval, conf.TrailingLogs = time.Hour, 3
	conf.Logger = hclog.NewNullLogger()
	return conf
}

// openCrashReplica starts a replica. Its operations are photographed if c is not nil.
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

// openCrashReplicaOn starts a replica on its stores as equip leaves them.
func openCrashReplicaOn(dir string, kind LogStore, equip func(*Stores) error) (*crashReplica, error) {
	var failed error
	opts := testStoreOptions()
	opts.Fatal = func(err error) { failed = err }
	s, err := Open(dir, kind, opts)
	if err != nil {
		return nil, err
	}
	if err := equip(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	_, own := raft.NewInmemTransportWithTimeout("a1", 10*time.Second)
	_, wire := raft.NewInmemTransportWithTimeout("a2", 10*time.Second)
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
	// Raft takes a snapshot of what the machine has applied, and says earlier that all is.
	for r.machine.last() < r.raft.AppliedIndex() {
		testbed.Pass(time.Millisecond)
	}
	if err := r.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return 0, err
	}
	return 0, nil
}

// whole reports a log with a gap, or with an entry that the cell has replaced below the
// newest snapshot: once elected, the replica would send it on.
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
