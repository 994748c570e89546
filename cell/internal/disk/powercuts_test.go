package disk

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

var cuts = flag.Int("cuts", 15, "how often TestPowerCuts cuts the power of replicas with each log store")

// TestPowerCuts: five replicas, of which the leader sends entries while it writes them, with slow disks. Again and again some of
// them lose power, above all the leader and all five at one moment; what they were writing is on the disk or not. No two apply different
// entries at one index, what was acknowledged stays, no message says that an entry is committed that its sender does not have on its disk,
// and every replica starts again.
func TestPowerCuts(t *testing.T) {
	const inOneCell = 30
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		for seed, left := uint64(1), *cuts; left > 0; seed, left = seed+1, left-inOneCell {
			synctest.Test(t, func(t *testing.T) {
				c := &cutCell{
					t: t, dir: filepath.Join(dir, fmt.Sprint(seed)), kind: kind, rng: rand.New(rand.NewPCG(seed, 51)),
					alive: map[string]*cutReplica{}, applied: map[uint64]string{}, waiting: map[string]chan struct{}{},
				}
				c.run(min(left, inOneCell))
				t.Logf("%d power cuts with pending entries, %d entries acknowledged, faults: %q", c.pending, len(c.acknowledged), c.faults)
				if len(c.faults) > 0 {
					t.Errorf("faults: %q", c.faults)
				}
				if c.pending == 0 || len(c.acknowledged) < 5*inOneCell {
					t.Error("that is too little to have shown anything")
				}
			})
		}
	})
}

// cutCell is a cell whose replicas lose power.
type cutCell struct {
	t    *testing.T
	dir  string
	kind LogStore

	mu           sync.Mutex // guards what follows
	rng          *rand.Rand
	alive        map[string]*cutReplica
	applied      map[uint64]string        // by index, as the first replica applied it
	waiting      map[string]chan struct{} // by replica and word
	acknowledged []string
	pending      int // power cuts while entries were pending
	faults       []string
}

// cutReplica is a replica from a start to the next power cut. It is also its state machine.
type cutReplica struct {
	cell   *cutCell
	id     string
	stores *Stores
	raft   *raft.Raft
	wire   *raft.InmemTransport
	dead   atomic.Bool
	words  map[string]bool // guarded by cell.mu
}

var errNoPower = errors.New("no power")

func (c *cutCell) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *cutCell) random(limit time.Duration) time.Duration { return time.Duration(c.pick(int(limit))) }

func (c *cutCell) pick(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *cutCell) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.faults) > 0
}

// replicas returns those that run, by ID.
func (c *cutCell) replicas() []*cutReplica {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.alive), func(a, b *cutReplica) int { return strings.Compare(a.id, b.id) })
}

func (c *cutCell) leader() *cutReplica {
	for _, r := range c.replicas() {
		if r.raft.State() == raft.Leader {
			return r
		}
	}
	return nil
}

// run cuts the power that often, or until there is a fault.
func (c *cutCell) run(cuts int) {
	ids := []string{"r1", "r2", "r3", "r4", "r5"}
	for _, id := range ids {
		c.start(id)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { c.propose(i, stop) })
	}
	for range cuts {
		testbed.Await(c.t, "a leader", func() bool { return c.failed() || c.leader() != nil })
		testbed.Pass(c.random(400 * time.Millisecond))
		if c.failed() {
			break
		}
		c.cut(c.victims()...)
		testbed.Pass(c.random(1200 * time.Millisecond))
		for _, id := range ids {
			c.start(id)
		}
	}
	close(stop)
	clients.Wait()
	if !c.failed() {
		testbed.Await(c.t, "every replica having what was acknowledged", c.complete)
	}
	c.cut(c.replicas()...)
}

// victims are the leader, perhaps cut off from the others a while before, or all replicas, or some.
func (c *cutCell) victims() []*cutReplica {
	all, leader := c.replicas(), c.leader()
	switch {
	case c.pick(4) == 0 || leader == nil:
		return all
	case c.pick(4) == 0:
		return []*cutReplica{all[c.pick(len(all))], leader}[:1+c.pick(2)]
	case c.pick(2) == 0:
		c.disconnect(leader)
		testbed.Pass(c.random(900 * time.Millisecond))
		for _, r := range all {
			c.connect(r)
		}
		testbed.Pass(c.random(100 * time.Millisecond))
	}
	return []*cutReplica{leader}
}

// start starts a replica that does not run, with what is on its disk.
func (c *cutCell) start(id string) {
	c.mu.Lock()
	runs := c.alive[id] != nil
	c.mu.Unlock()
	if runs {
		return
	}
	r := &cutReplica{cell: c, id: id, words: map[string]bool{}}
	opts := testStoreOptions()
	opts.ID, opts.segmentSize, opts.Stall = id, 0, time.Hour
	opts.Fatal = func(err error) {
		if !errors.Is(err, errNoPower) {
			c.fault("%s: %v", id, err)
		}
	}
	_, r.wire = raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), 200*time.Millisecond)
	if err := r.open(opts); err != nil {
		c.fault("%s does not start: %v", id, err)
		return
	}
	c.mu.Lock()
	c.alive[id] = r
	c.mu.Unlock()
	c.connect(r)
}

func (r *cutReplica) open(opts Options) (err error) {
	if r.stores, err = Open(filepath.Join(r.cell.dir, r.id), r.cell.kind, opts); err != nil {
		return err
	}
	s, conf := r.stores, cutConf(r.id)
	seen := &hooked{s.rawLogs, s.rawVotes, s.rawSnaps, r.disk}
	s.pending.inner, s.stable = seen, &failStopVotes{seen, s.failStop, "", s.pending.drain}
	trans := &cutTransport{r.wire, r}
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
	conf.NoLegacyTelemetry = true
	conf.Logger = hclog.NewNullLogger()
	return conf
}

// disk is an operation on the disk. Writes take a while; those of a leader may take longer than an election. When the
// power is cut meanwhile, they are on the disk or not.
func (r *cutReplica) disk(op string, do func() error) error {
	if r.raft != nil && !slices.Contains([]string{"FirstIndex", "LastIndex", "GetLog", "List", "Open"}, op) && !strings.HasPrefix(op, "Get ") {
		took := r.cell.random(8 * time.Millisecond)
		if r.raft.State() == raft.Leader {
			took = r.cell.random(60 * time.Millisecond)
			if r.cell.pick(12) == 0 {
				took += 200*time.Millisecond + r.cell.random(1500*time.Millisecond)
			}
		}
		testbed.Pass(took)
		if r.dead.Load() {
			if r.cell.pick(2) == 0 {
				_ = do()
			}
			return errNoPower
		}
	}
	return do()
}

func (c *cutCell) connect(r *cutReplica) {
	for _, other := range c.replicas() {
		if other != r {
			r.wire.Connect(other.wire.LocalAddr(), other.wire)
			other.wire.Connect(r.wire.LocalAddr(), r.wire)
		}
	}
}

func (c *cutCell) disconnect(r *cutReplica) {
	r.wire.DisconnectAll()
	for _, other := range c.replicas() {
		other.wire.Disconnect(r.wire.LocalAddr())
	}
}

// cut cuts the power of replicas at one moment.
func (c *cutCell) cut(replicas ...*cutReplica) {
	c.mu.Lock()
	for _, r := range replicas {
		r.dead.Store(true)
		delete(c.alive, r.id)
		if r.stores.Stored(1<<40) < 1<<40 {
			c.pending++
		}
	}
	c.mu.Unlock()
	for _, r := range replicas {
		c.disconnect(r)
	}
	for _, r := range replicas {
		_ = r.raft.Shutdown().Error()
		_ = r.wire.Close()
		_ = r.stores.Close() // the next start fails if it does
	}
}

// propose proposes words to replicas that take themselves for the leader.
func (c *cutCell) propose(client int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(c.random(30 * time.Millisecond)):
		}
		for _, r := range c.replicas() {
			if r.raft.State() == raft.Leader {
				c.await(r, fmt.Sprintf("%d.%d to %s", client, i, r.id))
			}
		}
	}
}

// await proposes a word, and waits for it for a while.
func (c *cutCell) await(r *cutReplica, word string) {
	done := make(chan struct{})
	c.mu.Lock()
	c.waiting[word] = done
	c.mu.Unlock()
	r.raft.Apply([]byte(word), 100*time.Millisecond)
	select {
	case <-done:
	case <-time.After(150 * time.Millisecond):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, word)
}

// complete reports whether every replica has what was acknowledged.
func (c *cutCell) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.alive {
		for _, word := range c.acknowledged {
			if !r.words[word] {
				return false
			}
		}
	}
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
