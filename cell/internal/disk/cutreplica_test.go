package disk

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// cutReplica is a replica from a start to the next power cut. It is also its state machine.
type cutReplica struct {
	cell   *cutCell
	id     string
	stores *Stores
	raft   *raft.Raft
	wire   *raft.InmemTransport
	runs   atomic.Bool     // it has been started
	dead   atomic.Bool     // its power is cut
	words  map[string]bool // guarded by cell.mu
}

var errNoPower = errors.New("no power")

func (r *cutReplica) open(opts Options) (err error) {
	if r.stores, err = Open(filepath.Join(r.cell.dir, r.id), r.cell.kind, opts); err != nil {
		return err
	}
	s, conf := r.stores, cutConf(r.id)
	seen := &hooked{s.rawLogs, s.rawVotes, s.rawSnaps, r.disk}
	s.pending.inner, s.stable = seen, &failStopVotes{seen, s.failStop, "", s.pending.drain}
	trans := &cappedTransport{r.wire, r.capped}
	if who := s.who.Get(); !who.Begun {
		members := map[string]string{}
		roster := &identity.Roster{CellID: "c"}
		for i := range 5 {
			m := identity.Member{ID: fmt.Sprintf("r%d", i+1), Raft: fmt.Sprintf("r%d", i+1), Incarnation: fmt.Sprintf("r%d-first", i+1)}
			if members[m.ID] = m.Raft; m.ID == r.id {
				m.Incarnation = who.Incarnation
			}
			roster.Members = append(roster.Members, m)
		}
		if err = errors.Join(s.who.Store(roster, false), s.Bootstrap(conf, trans)); err != nil {
			return err
		}
	}
	r.raft, err = s.StartRaft(conf, r, trans)
	return err
}

func cutConf(id string) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(id)
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	conf.CommitTimeout = 20 * time.Millisecond
	conf.SnapshotInterval, conf.SnapshotThreshold, conf.TrailingLogs = 700*time.Millisecond, 50, 20
	conf.MaxAppendEntries = 16
	conf.NoLegacyTelemetry, conf.ShutdownOnRemove = true, false
	conf.Logger = hclog.NewNullLogger()
	return conf
}

// disk is an operation on the disk. Writes take a while; those of a leader may take longer than an election. When the
// power is cut meanwhile, they are on the disk or not.
func (r *cutReplica) disk(op string, do func() error) error {
	if r.runs.Load() && !slices.Contains([]string{"FirstIndex", "LastIndex", "GetLog", "List", "Open"}, op) && !strings.HasPrefix(op, "Get ") {
		took := r.cell.random(8 * time.Millisecond)
		if r.raft.State() == raft.Leader {
			took = r.cell.random(60 * time.Millisecond)
			if r.cell.pick(12) == 0 {
				took += 200*time.Millisecond + r.cell.random(1500*time.Millisecond)
			}
		}
		testbed.Pass(took)
		if r.cell.isFull() {
			return syscall.ENOSPC
		}
		if r.dead.Load() {
			if r.cell.pick(2) == 0 {
				_ = do()
			}
			return errNoPower
		}
	}
	return do()
}

// isFull reports whether the disk is full for this write, as it is for one of 400.
func (c *cutCell) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes++; c.writes%400 > 0 || c.calm {
		return false
	}
	c.full++
	return true
}

// Apply implements raft.FSM.
func (r *cutReplica) Apply(e *raft.Log) any {
	c := r.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.dead.Load() {
		return nil
	}
	text := fmt.Sprintf("%q of term %d", e.Data, e.Term)
	if first, ok := c.applied[e.Index]; ok && first != text {
		c.faults = append(c.faults, fmt.Sprintf("entry %d: %s applied %s, and another one %s", e.Index, r.id, text, first))
	}
	c.applied[e.Index] = text
	r.words[string(e.Data)] = true
	if done, ok := c.waiting[string(e.Data)]; ok && strings.HasSuffix(string(e.Data), r.id) { // Raft answers the caller after this
		c.acknowledged = append(c.acknowledged, string(e.Data))
		delete(c.waiting, string(e.Data))
		close(done)
	}
	return nil
}

// Snapshot implements raft.FSM.
func (r *cutReplica) Snapshot() (raft.FSMSnapshot, error) {
	r.cell.mu.Lock()
	defer r.cell.mu.Unlock()
	return crashState(strings.Join(slices.Sorted(maps.Keys(r.words)), "\n")), nil
}

// Restore implements raft.FSM.
func (r *cutReplica) Restore(from io.ReadCloser) error {
	text, err := io.ReadAll(from)
	r.cell.mu.Lock()
	defer r.cell.mu.Unlock()
	r.words = map[string]bool{}
	for _, word := range strings.Split(string(text), "\n") {
		r.words[word] = true
	}
	return errors.Join(err, from.Close())
}

// capped is peer.capStored.
func capped(s *Stores, a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	capped := *a
	capped.LeaderCommitIndex = s.Stored(min(a.LeaderCommitIndex, a.PrevLogEntry+uint64(len(a.Entries))))
	return &capped
}

// capped is what the replica sends. It also checks it, and the commit mark.
func (r *cutReplica) capped(a *raft.AppendEntriesRequest) (*raft.AppendEntriesRequest, error) {
	if a = capped(r.stores, a); r.dead.Load() {
		return nil, errNoPower
	}
	mark := r.stores.mark.index()
	if last, err := r.stores.rawLogs.LastIndex(); err == nil && a.Term == r.raft.CurrentTerm() && max(mark, a.LeaderCommitIndex) > max(last, r.stores.mark.snapshotIndex()) {
		r.cell.fault("%s says that entry %d is committed, and its mark is %d; it has those up to %d on its disk", r.id, a.LeaderCommitIndex, mark, last)
	}
	return a, nil
}

// cappedTransport changes what it sends as peer.Transport does.
type cappedTransport struct {
	*raft.InmemTransport
	change func(*raft.AppendEntriesRequest) (*raft.AppendEntriesRequest, error)
}

// SetHeartbeatHandler ignores it, as peer.Transport does.
func (*cappedTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries implements raft.Transport.
func (t *cappedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	args, err := t.change(args)
	if err != nil {
		return err
	}
	return t.InmemTransport.AppendEntries(id, to, args, resp)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *cappedTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.InmemTransport.AppendEntriesPipeline(id, to)
	return cappedPipeline{p, t}, err
}

type cappedPipeline struct {
	raft.AppendPipeline
	trans *cappedTransport
}

// AppendEntries implements raft.AppendPipeline.
func (p cappedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	args, err := p.trans.change(args)
	if err != nil {
		return nil, err
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}
