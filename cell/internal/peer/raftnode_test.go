package peer

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// raftNode is one replica's Raft with the real port, transport and prober, and
// without the rest of Chubby.
type raftNode struct {
	id      string
	address string
	port    *Port
	trans   *Transport
	prober  *Prober
	raft    *raft.Raft
	stores  *disk.Stores // nil: in memory
	words   *testbed.Words
}

// nodeConfig configures a raftNode.
type nodeConfig struct {
	id      string
	members map[string]string // address by ID
	listen  net.Listener
	dial    func(string, time.Duration) (net.Conn, error)
	timeout time.Duration                   // heartbeat, election and lease
	wrap    func(*Transport) raft.Transport // nil: unchanged
	dir     string                          // stores on disk; empty: in memory
	begins  bool                            // the members' cell begins in an empty dir
	stored  func()                          // called on Raft's goroutine when entries were stored in dir; nil: nobody counts
	fatal   func(error)                     // called with the error that ends the stores in dir; nil: panic
	fsm     raft.FSM                        // nil: the node's words
	changed [2]appendChange                 // of what is sent, and of what is received; nil: those of NewTransport
}

// testPassport returns the passport of a member of a cell that has begun: r1 to
// r9.
func testPassport(cell, id string) *Passport {
	r := &identity.Roster{CellID: cell + "-id"}
	for i := range 9 {
		other := fmt.Sprintf("r%d", i+1)
		r.Members = append(r.Members, identity.Member{ID: other, Incarnation: other + "-first"})
	}
	me := identity.Replica{ID: id, Incarnation: id + "-first", Roster: r, Begun: true}
	return NewPassport(func() identity.Replica { return me }, 0, func(err error) { panic(err) }, testbed.Clock(), slog.New(slog.DiscardHandler))
}

// startNode starts a replica of a cell that is not bootstrapped yet.
func startNode(t testing.TB, cfg nodeConfig) *raftNode {
	t.Helper()
	n := &raftNode{id: cfg.id, address: cfg.members[cfg.id], words: &testbed.Words{}}
	n.port = OpenPort(PortConfig{
		Lost:     func(string) {},
		Passport: testPassport("test", cfg.id), Cell: "test", ID: cfg.id, Client: cfg.id + ".client", Address: n.address, Listen: cfg.listen, Connect: cfg.dial,
		MemberAt: func(address string) (string, bool) {
			for id, a := range cfg.members {
				if a == address {
					return id, true
				}
			}
			return "", false
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if cfg.changed[0] == nil {
		cfg.changed = [2]appendChange{capCommit, capCommit}
	}
	if cfg.fatal == nil {
		cfg.fatal = func(err error) { panic(err) }
	}
	if cfg.fsm == nil {
		cfg.fsm = n.words
	}
	n.trans = newTransport(n.port, NewRaftLog(slog.New(slog.DiscardHandler), nil, nil), cfg.changed[0], cfg.changed[1])
	n.prober = NewProber(n.port, testbed.Clock(), func(string, Report) {})
	var trans raft.Transport = n.trans
	if cfg.wrap != nil {
		trans = cfg.wrap(n.trans)
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(cfg.id)
	conf.Logger = hclog.NewNullLogger()
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = cfg.timeout, cfg.timeout, cfg.timeout
	conf.NoLegacyTelemetry = true
	conf.MaxAppendEntries = 512
	if cfg.dir == "" {
		mem := raft.NewInmemStore()
		r := testbed.Must(raft.NewRaft(conf, cfg.fsm, mem, mem, raft.NewDiscardSnapshotStore(), trans))(t)
		n.raft = r
	} else {
		opts := disk.Options{Cell: "test", ID: cfg.id, Logger: slog.New(slog.DiscardHandler), Silence: n.port.Silence, Bootstrap: true, Fatal: cfg.fatal}
		if cfg.stored != nil {
			opts.Clock, opts.Appended = testbed.Clock(), func(disk.Appended) { cfg.stored() }
		}
		s, err := disk.Open(cfg.dir, disk.WALStore, opts)
		testbed.NoErr(t, err)
		t.Cleanup(func() { _ = s.Close() })
		n.stores = s
		if cfg.begins && !s.Identity().Get().InCell() {
			beginCell(t, s, conf, trans, cfg)
		}
		if n.raft, err = s.StartRaft(conf, cfg.fsm, trans); err != nil {
			t.Fatal(err)
		}
	}
	n.port.Passport.HoldsUpTo(n.raft.LastIndex)
	n.trans.StartReceiving(func() []raft.Server { return n.raft.GetConfiguration().Configuration().Servers })
	n.port.AnswerProbes(func() Report { return Report{Term: n.raft.CurrentTerm(), Last: n.raft.LastIndex()} })
	return n
}

// beginCell has the members' cell begin in a node's stores.
func beginCell(t testing.TB, s *disk.Stores, conf *raft.Config, trans raft.Transport, cfg nodeConfig) {
	t.Helper()
	r := &identity.Roster{CellID: "test-id"}
	for _, server := range testbed.Voters(cfg.members).Servers {
		m := identity.Member{ID: string(server.ID), Raft: string(server.Address), Incarnation: string(server.ID) + "-first"}
		if m.ID == cfg.id {
			m.Incarnation = s.Identity().Get().Incarnation
		}
		r.Members = append(r.Members, m)
	}
	testbed.NoErr(t, errors.Join(s.Identity().Store(r, false), s.Bootstrap(conf, trans)))
}

// bootstrap makes the members a cell.
func (n *raftNode) bootstrap(t testing.TB, members map[string]string) {
	t.Helper()
	testbed.NoErr(t, n.raft.BootstrapCluster(testbed.Voters(members)).Error())
}

// stop ends every part of the node, in an order in which no part waits for
// another.
func (n *raftNode) stop() {
	n.prober.Close()
	stopped := n.raft.Shutdown()
	_ = n.trans.Close() // never fails
	_ = stopped.Error() // never fails
	if n.stores != nil {
		_ = n.stores.Close() // the next start fails if it does
	}
}

// fence returns the fence of the term that the node leads.
func (n *raftNode) fence() *Fence {
	return NewFence(FenceConfig{
		Term: n.raft.CurrentTerm(), Self: n.id, Raft: n.raft, Ask: n.prober.Ask, Clock: testbed.Clock(),
		Hint: func() string { return "" }, Ended: func(time.Duration, error) {},
	})
}

// leader waits until one of the nodes leads.
func leader(t testing.TB, nodes ...*raftNode) *raftNode {
	t.Helper()
	var found *raftNode
	testbed.Await(t, "a leader", func() bool {
		i := slices.IndexFunc(nodes, func(n *raftNode) bool { return n.raft.State() == raft.Leader })
		if i >= 0 {
			found = nodes[i]
		}
		return i >= 0
	})
	return found
}

// makeLeader makes n the leader, and waits until it may serve.
func makeLeader(t testing.TB, n *raftNode, nodes ...*raftNode) {
	t.Helper()
	testbed.Await(t, n.id+" leading", func() bool {
		l := leader(t, nodes...)
		if l.raft.Barrier(time.Second).Error() == nil && l != n {
			// It may fail; then another round is needed.
			_ = l.raft.LeadershipTransferToServer(raft.ServerID(n.id), raft.ServerAddress(n.address)).Error()
		}
		return l == n
	})
}

// apply applies a word and fails the test if it is not acknowledged.
func (n *raftNode) apply(t testing.TB, word string) {
	t.Helper()
	if err := n.raft.Apply([]byte(word), 5*time.Second).Error(); err != nil {
		t.Fatalf("%s: apply %q: %v", n.id, word, err)
	}
}

// Raft's log lines about a peer have its id. A peer that does not answer for a while is
// logged with the cause, and a single election without a result is not.
func TestRaftLogNamesReplicas(t *testing.T) {
	count, now := &testbed.Lines{}, session.Instant(0)
	log := NewRaftLog(slog.New(slog.NewTextHandler(count, &slog.HandlerOptions{Level: slog.LevelDebug})), func() session.Instant { return now }, func(address string) (string, bool) {
		return strings.TrimSuffix(address, ":7431"), strings.HasSuffix(address, ":7431")
	})
	peer := func(id string) raft.Server {
		return raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":7431")}
	}
	log.Error("failed to make requestVote RPC", "target", peer("r2"), "error", "refused", "term", 7)
	log.Warn("Election timeout reached, restarting election")
	log.Warn("heartbeat timeout reached, starting election", "last-leader-addr", raft.ServerAddress(""), "last-leader-id", raft.ServerID(""))
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "level=DEBUG") {
		t.Errorf("while the others may be starting: %q", lines)
	}
	now = now.Add(awayAfter)
	log.Error("failed to make requestVote RPC", "target", peer("r2"), "error", "refused", "term", 7)
	if lines := count.Take(); len(lines) != 0 {
		t.Errorf("while the others may still be starting: %q", lines)
	}
	now = now.Add(time.Hour)
	log.Warn("Election timeout reached, restarting election")
	if lines := count.Take(); len(lines) != 0 {
		t.Errorf("an hour later nobody complains any more: %q", lines)
	}
	complain := func() {
		log.Error("failed to heartbeat to", "peer", raft.ServerAddress("r2:7431"), "backoff time", "1s", "error", "refused")
		log.Error("failed to appendEntries to", "peer", peer("r3"), "error", errors.New("msgpack decode error [pos 9]: i/o timeout"))
	}
	complain()
	now = now.Add(awayAfter)
	log.away.answered("r2", false)
	complain()
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "peers=[r3]") || !strings.Contains(lines[0], "i/o timeout (if this") || !strings.Contains(lines[0], "MTU") {
		t.Errorf("r2 was late, and r3 gets no entries: %q", lines)
	}
	log.away.answered("r3", false) // to a heartbeat, which is small
	now = now.Add(awayAfter)
	for range 100 {
		complain()
	}
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "peers=[r2]") || !strings.Contains(lines[0], "error=refused") {
		t.Errorf("another one: %q", lines)
	}
	for range 100 { // a replica that needs a snapshot
		log.Error("failed to get log", "index", 6, "error", raft.ErrLogNotFound)
		log.Error("failed to install snapshot", "peer", raft.ServerID("r3"), "id", "2-9508-1", "error", fmt.Errorf("connect: %w", api.Unavailable))
		log.Error("failed to send snapshot to", "peer", peer("r3"), "error", "refused")
	}
	log.Error("failed to install snapshot", "peer", raft.ServerID("r3"), "id", "2-9508-1", "error", errors.New("failed to restore"))
	lines := count.Take()
	if last := len(lines) - 1; !strings.Contains(lines[last], "level=ERROR") {
		t.Errorf("a snapshot that a replica cannot take: %s", lines[last])
	}
	for _, line := range lines[:len(lines)-1] {
		if !strings.Contains(line, "level=DEBUG") {
			t.Errorf("a replica that is away and needs a snapshot: %s", line)
		}
	}
	now = now.Add(awayLogEvery - 2*awayAfter)
	complain()
	log.away.answered("r3", true)
	log.Warn("failed to contact", "server-id", raft.ServerID("r4"), "time", time.Second)
	now = now.Add(awayAfter)
	log.Warn("failed to contact", "server-id", raft.ServerID("r4"), "time", 3*time.Second)
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], `peers="[r2 r4]" error="r2: refused; r4: it has not answered for 3s"`) {
		t.Errorf("after a minute, r3 is back: %q", lines)
	}
	now = now.Add(time.Hour)
	for range minFruitless {
		if lines := count.Take(); len(lines) != 0 {
			t.Errorf("after an election or two: %q", lines)
		}
		log.Warn("Election timeout reached, restarting election")
	}
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "elect no master") {
		t.Errorf("after %d elections in vain: %q", minFruitless, lines)
	}
	log.Warn("heartbeat timeout reached, starting election", "last-leader-addr", raft.ServerAddress("r2:7431"), "last-leader-id", raft.ServerID("r2"))
	log.Error("failed to persist vote", "error", "it failed")
	lines = count.Take()
	if len(lines) != 2 || !strings.Contains(lines[0], "level=INFO") || strings.Contains(lines[0], "7431") || !strings.Contains(lines[1], `level=ERROR msg="failed to persist vote"`) {
		t.Errorf("logged %q", lines)
	}
}

// TestRaftLog: the libraries' log lines keep their attributes.
func TestRaftLog(t *testing.T) {
	count := &testbed.Lines{}
	log := NewStoreLog(slog.New(slog.NewTextHandler(count, &slog.HandlerOptions{Level: slog.LevelDebug}))).Named("raft").With("peer", "r2")
	log.Warn("failed to contact", "time", 7)
	log.Info("entering state")
	lines := count.Take()
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "library=raft peer=r2 time=7") || !strings.Contains(lines[1], "level=DEBUG") {
		t.Errorf("logged %q", lines)
	}
}
