package disk

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

var cuts = flag.Int("cuts", 15, "how often TestPowerCuts cuts the power of replicas with each log store")

// TestPowerCuts: five replicas, of which the leader sends entries while it writes them, with slow disks. Again and again some of
// them lose power, above all the leader and all five at one moment; what they were writing is on the disk or not. Disks are full at
// times, members are removed and come back, and snapshots are taken and sent. No two replicas apply different entries at one index, what
// was acknowledged stays, no message and no mark says that an entry is committed that its sender does not have on its disk, and every
// replica starts again.
func TestPowerCuts(t *testing.T) {
	const inOneCell = 30
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		for seed, left := uint64(1), *cuts; left > 0; seed, left = seed+1, left-inOneCell {
			synctest.Test(t, func(t *testing.T) {
				c := &cutCell{
					t: t, dir: filepath.Join(dir, fmt.Sprint(seed)), kind: kind, rng: rand.New(rand.NewPCG(seed, 51)),
					alive: map[string]*cutReplica{}, applied: map[uint64]string{}, waiting: map[string]chan struct{}{}, open: map[string]chan struct{}{},
				}
				c.run(min(left, inOneCell))
				t.Logf("%d power cuts with pending entries, %d failed writes, %d members removed, %d entries acknowledged", c.pending, c.full, c.removed, len(c.acknowledged))
				switch {
				case len(c.faults) > 0:
					t.Errorf("%d faults, first %q", len(c.faults), c.faults[:min(3, len(c.faults))])
				case c.pending == 0 || c.full == 0 || c.removed == 0 || len(c.acknowledged) < 5*inOneCell:
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
	pending      int  // power cuts while entries were pending
	calm         bool // no disk is full any more
	writes       int
	full         int // of these, those that failed because the disk was full
	removed      int // members
	faults       []string

	ended sync.WaitGroup           // replicas that end themselves
	open  map[string]chan struct{} // by ID, full while a replica's directory is open
}

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
		c.open[id] = make(chan struct{}, 1)
		c.start(id)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { c.propose(i, stop) })
	}
	for n := range cuts {
		testbed.Await(c.t, "a leader", func() bool { return c.failed() || c.leader() != nil })
		c.changeMembers(n, ids)
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
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	testbed.Await(c.t, "every replica having what was acknowledged", func() bool {
		if c.failed() || c.complete() {
			return true
		}
		for _, id := range ids {
			c.start(id)
			c.add(id)
		}
		return false
	})
	c.cut(c.replicas()...)
	c.ended.Wait()
}

// changeMembers removes a member before one power cut of three, and adds it before another.
func (c *cutCell) changeMembers(cut int, ids []string) {
	leader, id := c.leader(), ids[c.pick(len(ids))]
	switch {
	case leader == nil:
	case cut%3 == 0:
		if leader.raft.RemoveServer(raft.ServerID(id), 0, time.Second).Error() == nil {
			c.removed++
		}
	case cut%3 == 1:
		for _, id := range ids {
			c.add(id)
		}
	}
}

// add adds a member, unless it is one or the leader goes meanwhile.
func (c *cutCell) add(id string) {
	leader := c.leader()
	if leader == nil {
		return
	}
	for _, server := range leader.raft.GetConfiguration().Configuration().Servers {
		if server.ID == raft.ServerID(id) {
			return
		}
	}
	_ = leader.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, time.Second).Error() // it is tried again
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
		switch {
		case errors.Is(err, syscall.ENOSPC):
			c.ended.Go(func() { c.cut(r) })
		case !errors.Is(err, errNoPower):
			c.fault("%s: %v", id, err)
		}
	}
	c.open[id] <- struct{}{} // once the one before has closed it
	_, r.wire = raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), 200*time.Millisecond)
	if err := r.open(opts); err != nil {
		c.fault("%s does not start: %v", id, err)
		return
	}
	c.mu.Lock()
	c.alive[id] = r
	c.mu.Unlock()
	c.connect(r)
	r.runs.Store(true)
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
	replicas = slices.DeleteFunc(slices.Clone(replicas), func(r *cutReplica) bool { return r.dead.Swap(true) })
	for _, r := range replicas {
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
		if err := r.stores.Close(); err != nil {
			c.fault("%s: %v", r.id, err)
		}
		<-c.open[r.id]
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
