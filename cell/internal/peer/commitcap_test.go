package peer

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
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

var returns = flag.Int("returns", 12, "how often TestReplicasApplyTheSame has a deposed leader come back")

// uncapped is what version 0.1.0 did with entries.
func uncapped(a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest { return a }

// TestFollowerCommitsWhatAMessageShows: a follower has an entry of a deposed leader behind the last one that the
// messages of the next leader show, and it must not apply it.
func TestFollowerCommitsWhatAMessageShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire, members := memnet.New(), map[string]string{"r1": "a", "r2": "b"}
		nodes := map[string]*raftNode{}
		for id := range members {
			nodes[id] = startNode(t, nodeConfig{id: id, members: members, listen: wire.Listen(members[id]), dial: wire.Dialer(members[id]), timeout: time.Hour})
			defer nodes[id].stop()
		}
		send := func(term, prev, prevTerm, committed uint64, entries ...*raft.Log) {
			t.Helper()
			request := &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("r2"), Addr: []byte("b")},
				Term:      term, PrevLogEntry: prev, PrevLogTerm: prevTerm, LeaderCommitIndex: committed, Entries: entries,
			}
			var answer raft.AppendEntriesResponse // the leader is of version 0.1.0: it does not cap
			if err := nodes["r2"].trans.NetworkTransport.AppendEntries("r1", "a", request, &answer); err != nil || !answer.Success {
				t.Fatalf("%v %+v", err, answer)
			}
		}
		entry := func(index, term uint64, word string) *raft.Log {
			return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(word)}
		}
		send(1, 0, 0, 1, entry(1, 1, "first"), entry(2, 1, "never committed"))
		send(2, 1, 1, 2) // entry 2 of term 2 is committed, and this message ends before it
		send(2, 1, 1, 2, entry(2, 2, "second"))
		synctest.Wait()
		if got, want := nodes["r1"].words.All(), []string{"first", "second"}; !slices.Equal(got, want) {
			t.Errorf("it applied %q, and %q are committed", got, want)
		}
	})
}

// TestSendersSayWhatIsStored: a request says that entries are committed up to the last one that it shows, and that its
// sender has on its disk. Raft's own request stays as it is.
func TestSendersSayWhatIsStored(t *testing.T) {
	for _, c := range []struct{ raft, shown, stored, want uint64 }{{9, 9, 9, 9}, {9, 9, 7, 7}, {9, 6, 7, 6}, {5, 9, 7, 5}, {0, 9, 7, 0}} {
		asked := &raft.AppendEntriesRequest{LeaderCommitIndex: c.raft, PrevLogEntry: c.shown - 2, Entries: make([]*raft.Log, 2)}
		sent := capStored(func(index uint64) uint64 { return min(index, c.stored) })(asked)
		if sent.LeaderCommitIndex != c.want || asked.LeaderCommitIndex != c.raft {
			t.Errorf("%+v: sent %d, and Raft's own is now %d", c, sent.LeaderCommitIndex, asked.LeaderCommitIndex)
		}
	}
}

// TestReplicasApplyTheSame: five replicas with disks that stall; a leader dies again and again with entries that no other
// replica has, and comes back while the next one has just begun. No two apply different entries at one index, and what was
// acknowledged stays. One of the two caps is enough. Without both the scenario finds replicas that differ; otherwise it would prove nothing.
func TestReplicasApplyTheSame(t *testing.T) {
	for _, c := range []struct {
		name    string
		changed [2]appendChange
		differ  bool
	}{
		{"senders of 0.1.0", [2]appendChange{uncapped, capCommit}, false},
		{"receivers of 0.1.0", [2]appendChange{capCommit, uncapped}, false},
		{"both of 0.1.0", [2]appendChange{uncapped, uncapped}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			const inOneCell = 100
			left := *returns
			if c.differ {
				left = inOneCell // it ends with the first fault, which one return in five shows
			}
			for seed := uint64(1); left > 0; seed++ {
				synctest.Test(t, func(t *testing.T) {
					s := newReturning(t, seed, c.changed)
					n := s.run(min(left, inOneCell))
					t.Logf("%d returns, %d entries acknowledged, faults: %q", n, len(s.acknowledged), s.faults)
					if differ := len(s.faults) > 0; differ != c.differ {
						t.Errorf("faults: %v, want %v", differ, c.differ)
					}
				})
				left -= inOneCell
			}
		})
	}
}

// returning is a cell whose leaders die and come back.
type returning struct {
	t       *testing.T
	dir     string
	changed [2]appendChange
	wire    *memnet.Network
	members map[string]string

	mu           sync.Mutex // guards what follows
	rng          *rand.Rand
	ledgers      map[*raftNode]*ledger // of the replicas that run
	applied      map[uint64]string     // by index, as the first replica applied it
	waiting      map[string]proposal   // by word
	term         uint64                // the newest that has a leader
	acknowledged []string
	faults       []string
}

// proposal is a word that somebody waits for, at the replica that it was proposed to.
type proposal struct {
	by   *ledger
	done chan struct{}
}

func newReturning(t *testing.T, seed uint64, changed [2]appendChange) *returning {
	return &returning{
		t: t, dir: t.TempDir(), changed: changed, wire: memnet.New(), members: map[string]string{}, rng: rand.New(rand.NewPCG(seed, 1)),
		ledgers: map[*raftNode]*ledger{}, applied: map[uint64]string{}, waiting: map[string]proposal{},
	}
}

func (s *returning) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// run has leaders die and come back that often, or until there is a fault, and returns how often they did.
func (s *returning) run(returns int) int {
	var ids []string
	for i := range 5 {
		ids = append(ids, fmt.Sprintf("r%d", i+1))
		s.members[ids[i]] = fmt.Sprintf("host%d", i+1)
	}
	for _, id := range ids {
		s.start(id)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 2 {
		clients.Go(func() { s.propose(i, stop) })
	}
	n := 0
	for ; n < returns && !s.failed(); n++ {
		old := leader(s.t, s.alive()...)
		testbed.Pass(s.random(500 * time.Millisecond))
		s.isolate(old, true)
		testbed.Pass(s.random(250 * time.Millisecond)) // it takes what nobody else gets
		s.stop(old)
		s.isolate(old, false)
		leader(s.t, s.alive()...)
		testbed.Pass(s.random(1500 * time.Millisecond))
		s.start(old.id)
		testbed.Pass(s.random(time.Second))
	}
	close(stop)
	clients.Wait()
	if !s.failed() {
		testbed.Await(s.t, "every replica having what was acknowledged", s.complete)
	}
	for _, node := range s.alive() {
		s.stop(node)
	}
	return n
}

// start starts a replica, with what it has on its disk.
func (s *returning) start(id string) {
	l := &ledger{sim: s, id: id, words: map[string]bool{}}
	n := startNode(s.t, nodeConfig{
		id: id, members: s.members, listen: s.wire.Listen(s.members[id]), dial: s.wire.Dialer(s.members[id]), timeout: 300 * time.Millisecond,
		dir: filepath.Join(s.dir, id), begins: true, changed: s.changed, fsm: l,
		stored: func() { testbed.Pass(s.stall(id)) },
		fatal:  func(err error) { s.fault("%s: %v", id, err) },
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledgers[n] = l
}

// stop ends a replica, as its process dies.
func (s *returning) stop(n *raftNode) {
	s.mu.Lock()
	delete(s.ledgers, n)
	s.mu.Unlock()
	n.stop()
}

// isolate cuts a replica off from the others, or ends that.
func (s *returning) isolate(n *raftNode, cut bool) {
	for id, address := range s.members {
		if id != n.id {
			s.wire.Cut(n.address, address, cut)
		}
	}
}

// stall returns how long the disk of a replica takes for a write: that of a leader stalls at its first entry.
func (s *returning) stall(id string) time.Duration {
	for _, n := range s.alive() {
		if n.id == id && n.raft.State() == raft.Leader && s.isNew(n.raft.CurrentTerm()) {
			return 700*time.Millisecond + s.random(time.Second)
		}
	}
	return s.random(5 * time.Millisecond)
}

// isNew reports whether it is called with a term for the first time.
func (s *returning) isNew(term uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	later := term > s.term
	s.term = max(s.term, term)
	return later
}

// propose proposes words to replicas that take themselves for the leader.
func (s *returning) propose(client int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(s.random(100 * time.Millisecond)):
		}
		for _, n := range s.alive() {
			if n.raft.State() == raft.Leader {
				s.await(n, fmt.Sprintf("%d.%d to %s", client, i, n.id))
			}
		}
	}
}

// await proposes a word, and waits for it for a while.
func (s *returning) await(n *raftNode, word string) {
	p := proposal{done: make(chan struct{})}
	s.mu.Lock()
	p.by = s.ledgers[n]
	s.waiting[word] = p
	s.mu.Unlock()
	n.raft.Apply([]byte(word), 100*time.Millisecond) // its future is not always answered when Raft ends: see Apply
	select {
	case <-p.done:
	case <-time.After(100 * time.Millisecond):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, word)
}

// complete reports whether every replica has what was acknowledged.
func (s *returning) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.ledgers {
		for _, word := range s.acknowledged {
			if !l.words[word] {
				return false
			}
		}
	}
	return true
}

// random returns a duration below the limit.
func (s *returning) random(limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(limit)))
}

func (s *returning) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults) > 0
}

// alive returns the replicas that run, by ID.
func (s *returning) alive() []*raftNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.ledgers), func(a, b *raftNode) int { return strings.Compare(a.id, b.id) })
}

// ledger is the state machine of a replica, from one start of it to the next.
type ledger struct {
	sim   *returning
	id    string
	words map[string]bool // guarded by sim.mu
}

// Apply implements raft.FSM.
func (l *ledger) Apply(e *raft.Log) any {
	s := l.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%q of term %d", e.Data, e.Term)
	if first, ok := s.applied[e.Index]; ok && first != text {
		s.faults = append(s.faults, fmt.Sprintf("entry %d: %s applied %s, and another one %s", e.Index, l.id, text, first))
	}
	s.applied[e.Index] = text
	l.words[string(e.Data)] = true
	if w, ok := s.waiting[string(e.Data)]; ok && w.by == l { // Raft answers the caller after this
		s.acknowledged = append(s.acknowledged, string(e.Data))
		delete(s.waiting, string(e.Data))
		close(w.done)
	}
	return nil
}

// Snapshot implements raft.FSM.
func (*ledger) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

// Restore implements raft.FSM.
func (*ledger) Restore(io.ReadCloser) error { return errNoSnapshots }

var errNoSnapshots = errors.New("there are no snapshots")
