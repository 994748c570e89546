package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		return c.see(s, c.around)
	})
}

// see has the camera see the operations of stores: those of Raft by around, and those on the log itself.
func (c *crashCamera) see(s *Stores, around func(op string, do func() error) error) error {
	noted, ok := s.rawLogs.(*notedLog)
	if !ok {
		return fmt.Errorf("the log is a %T", s.rawLogs)
	}
	noted.logFiles = struct {
		*hooked
		io.Closer
	}{&hooked{LogStore: noted.logFiles, around: c.aroundLog}, noted.logFiles}
	seen := &hooked{s.rawLogs, s.rawVotes, s.rawSnaps, around}
	s.pending.inner = seen
	s.stable = &failStopVotes{inner: seen, failStop: s.failStop, drain: s.pending.drain}
	s.snapshots = &failStopSnapshots{inner: seen, failStop: s.failStop, mark: &s.mark}
	return nil
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
	trans := &cappedTransport{own, func(a *raft.AppendEntriesRequest) (*raft.AppendEntriesRequest, error) { return capped(s, a), nil }}
	r := &crashReplica{s: s, machine: &crashMachine{}, wire: wire}
	if !s.who.Get().Begun {
		me := s.who.Get()
		all := &identity.Roster{CellID: "c", Members: []identity.Member{{ID: "r1", Raft: "a1", Incarnation: me.Incarnation}, {ID: "r2", Raft: "a2", Incarnation: "i2"}, {ID: "r3", Raft: "a3", Incarnation: "i3"}}}
		if me.Roster == nil {
			err = s.who.Store(all, false)
		}
		if err == nil {
			err = s.Bootstrap(crashConf(), trans)
		}
	}
	if err == nil {
		r.raft, err = s.StartRaft(crashConf(), r.machine, trans)
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
	said  said // of a leader
}

// crashCamera keeps a copy of a data directory after each of Raft's operations on it.
type crashCamera struct {
	t      *testing.T
	dir    string
	points []crashPoint
	acked  uint64
	step   int
	term   uint64
	says   func() said // of a leader; else nil
}

func (c *crashCamera) shoot(what string, err error) error {
	if err != nil {
		return err
	}
	p := crashPoint{after: what, dir: filepath.Join(c.t.TempDir(), "data"), step: c.step, acked: c.acked, term: c.term}
	if c.says != nil {
		p.said = c.says()
	}
	c.points = append(c.points, p)
	return os.CopyFS(p.dir, os.DirFS(c.dir))
}

// around copies after an operation that changes something.
func (c *crashCamera) around(op string, do func() error) error {
	if strings.HasPrefix(op, "Get") || slices.Contains([]string{"FirstIndex", "LastIndex", "List", "Open"}, op) {
		return do()
	}
	return c.shoot(op, do())
}

// aroundLog also copies before and after each change of the log itself; the note of the log's end is written
// before or after that change.
func (c *crashCamera) aroundLog(op string, do func() error) error {
	if op != "StoreLogs" && op != "DeleteRange" {
		return do()
	}
	if err := c.shoot("what comes before "+op, nil); err != nil {
		return err
	}
	return c.shoot(op+", in the log alone", do())
}
