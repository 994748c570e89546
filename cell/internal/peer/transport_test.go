package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// TestHeartbeatsCannotForkTheLog is why raftTransport.SetHeartbeatHandler
// ignores its argument (hashicorp/raft issue 695). A leads; B is elected while
// A is cut off and does not notice (A's own timeouts are long, like those of a
// paused process). Then B's heartbeats reach A before anything else does, and a
// command is waiting at A. With the shortcut, A writes the command in B's term,
// and the replicas' states differ permanently. The case with the shortcut shows
// that the scenario can fork the log; otherwise the other case would prove
// nothing.
func TestHeartbeatsCannotForkTheLog(t *testing.T) {
	for name, shortcut := range map[string]bool{"shortcut": true, "ours": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := forkedHistories(t, shortcut)
				if forked := !slices.Equal(a, b); forked != shortcut {
					t.Errorf("with the shortcut %v:\nA has %v\nB has %v", shortcut, a, b)
				}
			})
		})
	}
}

// forkedHistories plays the scenario and returns the final contents of A's and
// of the new leader's state machines.
func forkedHistories(t *testing.T, shortcut bool) (a, b []string) {
	wire := memnet.New()
	members := map[string]string{"r1": "a", "r2": "b", "r3": "c"}
	var gate *gatedTransport
	var nodes []*raftNode
	for _, id := range []string{"r1", "r2", "r3"} {
		cfg := nodeConfig{id: id, members: members, listen: wire.Listen(members[id]), dial: wire.Dialer(members[id]), timeout: 300 * time.Millisecond}
		if id == "r1" {
			cfg.timeout = 30 * time.Second
			cfg.wrap = func(tr *Transport) raft.Transport {
				gate = newGatedTransport(tr, shortcut)
				return gate
			}
		}
		nodes = append(nodes, startNode(t, cfg))
	}
	defer func() {
		gate.set(gateOpen)
		for _, n := range nodes {
			n.stop()
		}
		gate.close()
	}()
	old := nodes[0]
	nodes[1].bootstrap(t, members)
	makeLeader(t, old, nodes...)
	old.apply(t, "base")

	gate.set(gateShut)
	winner := leader(t, nodes[1:]...)
	winner.apply(t, "acknowledged")
	if old.raft.State() != raft.Leader {
		t.Fatal("the old leader has noticed the election, and must not in this scenario")
	}

	gate.set(gateHeartbeats)
	testbed.Pass(time.Second)
	_ = old.raft.Apply([]byte("stray"), time.Second).Error() // refused, or lost; both are right

	gate.set(gateOpen)
	testbed.Pass(2 * time.Second)
	winner.apply(t, "after")
	testbed.Await(t, "the old leader following", func() bool { return slices.Contains(old.words.All(), "after") })
	return old.words.All(), winner.words.All()
}

// The positions of a gatedTransport.
type gatePosition int

const (
	gateOpen       gatePosition = iota
	gateShut                    // nothing comes in or goes out
	gateHeartbeats              // heartbeats come in; the rest waits
)

// gatedTransport decides which of a node's messages pass.
type gatedTransport struct {
	*Transport
	shortcut bool // install Raft's heartbeat handler, as raft.NetworkTransport does
	rpcs     chan raft.RPC
	stop     chan struct{}
	work     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	position gatePosition
	moved    chan struct{} // closed when the position changes
}

func newGatedTransport(inner *Transport, shortcut bool) *gatedTransport {
	g := &gatedTransport{Transport: inner, shortcut: shortcut, rpcs: make(chan raft.RPC), stop: make(chan struct{}), moved: make(chan struct{})}
	g.work.Go(func() {
		for {
			select {
			case rpc := <-inner.Consumer():
				g.work.Go(func() { g.admit(rpc) })
			case <-g.stop:
				return
			}
		}
	})
	return g
}

func (g *gatedTransport) set(p gatePosition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.position = p
	close(g.moved)
	g.moved = make(chan struct{})
}

func (g *gatedTransport) at() (gatePosition, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.position, g.moved
}

func (g *gatedTransport) close() {
	close(g.stop)
	g.work.Wait()
}

// admit passes a message on when the gate allows it.
func (g *gatedTransport) admit(rpc raft.RPC) {
	for {
		position, moved := g.at()
		switch {
		case position == gateShut:
			rpc.Respond(nil, errors.New("cut off"))
			return
		case position == gateOpen || isHeartbeat(rpc):
			select {
			case g.rpcs <- rpc:
			case <-g.stop:
			}
			return
		}
		select {
		case <-moved:
		case <-g.stop:
			return
		}
	}
}

func isHeartbeat(rpc raft.RPC) bool {
	a, ok := rpc.Command.(*raft.AppendEntriesRequest)
	return ok && a.PrevLogEntry == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

func (g *gatedTransport) Consumer() <-chan raft.RPC { return g.rpcs }

func (g *gatedTransport) SetHeartbeatHandler(handle func(raft.RPC)) {
	gated := func(rpc raft.RPC) {
		if position, _ := g.at(); position == gateShut {
			rpc.Respond(nil, errors.New("cut off"))
			return
		}
		handle(rpc)
	}
	if g.shortcut {
		g.NetworkTransport.SetHeartbeatHandler(gated)
	} else {
		g.Transport.SetHeartbeatHandler(gated)
	}
}

func (g *gatedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if position, _ := g.at(); position != gateOpen {
		return errors.New("cut off")
	}
	return g.Transport.AppendEntries(id, to, req, resp)
}

func (g *gatedTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// threeNodes starts the three members of a cell.
func threeNodes(t *testing.T) (wire *memnet.Network, members map[string]string, nodes []*raftNode) {
	t.Helper()
	wire, members = memnet.New(), map[string]string{"r1": "a", "r2": "b", "r3": "c"}
	for _, id := range []string{"r1", "r2", "r3"} {
		n := startNode(t, nodeConfig{id: id, members: members, listen: wire.Listen(members[id]), dial: wire.Dialer(members[id]), timeout: 300 * time.Millisecond})
		t.Cleanup(n.stop)
		nodes = append(nodes, n)
	}
	nodes[0].bootstrap(t, members)
	return wire, members, nodes
}

// TestAcknowledgementsAreRemembered: a leader remembers what each follower has
// acknowledged of the entries that the leader has reported as committed,
// whichever way it sent the report.
func TestAcknowledgementsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, nodes := threeNodes(t)
		l := leader(t, nodes...)
		for i := range 20 {
			l.apply(t, fmt.Sprint(i))
		}
		testbed.Pass(time.Second) // the followers learn of the commit
		for _, n := range nodes {
			if held := l.port.Passport.HeldBy(n.id); n != l && held < l.raft.CommitIndex() {
				t.Errorf("%s is remembered to hold %d, and %d are committed", n.id, held, l.raft.CommitIndex())
			}
		}
	})
}

// TestSnapshotThatStopsArriving: a master falls silent while it sends a snapshot, and its
// connections stay open. The replicas must still vote for another.
func TestSnapshotThatStopsArriving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire, members, nodes := threeNodes(t)
		stops := leader(t, nodes...)
		stops.apply(t, "before")
		others := slices.DeleteFunc(slices.Clone(nodes), func(n *raftNode) bool { return n == stops })
		request := &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(stops.id), Addr: []byte(stops.address)},
			SnapshotVersion: 1, Term: stops.raft.CurrentTerm(), LastLogIndex: 1000, LastLogTerm: stops.raft.CurrentTerm(),
			Configuration: raft.EncodeConfiguration(testbed.Voters(members)), ConfigurationIndex: 1, Size: 1 << 20,
		}
		rest, end := io.Pipe() // it blocks until it is closed
		var sending sync.WaitGroup
		defer sending.Wait()
		defer end.Close()
		sending.Go(func() {
			_ = stops.trans.InstallSnapshot(raft.ServerID(others[0].id), raft.ServerAddress(others[0].address), request, &raft.InstallSnapshotResponse{}, rest) // it fails
		})
		testbed.Pass(10 * time.Millisecond)
		for _, n := range others {
			wire.Cut(stops.address, n.address, true)
		}
		began := time.Now()
		leader(t, others...).apply(t, "after")
		if took := time.Since(began); took > 2*raftRPCTimeout {
			t.Errorf("another was elected after %v", took)
		}
	})
}

// TestMessageThatArrivesSlowly: over a slow link a message may take any time, as long as more of it
// arrives within raftRPCTimeout. Between messages the link may be quiet for longer.
func TestMessageThatArrivesSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := net.Pipe()
		defer theirs.Close()
		stream := &inboundStream{portConn: &portConn{Conn: ours, port: &Port{PortConfig: PortConfig{Lost: func(string) {}}, conns: map[*portConn]struct{}{}}}}
		var sending sync.WaitGroup
		defer sending.Wait()
		sending.Go(func() {
			for range 2 {
				testbed.Pass(time.Hour)
				for range 20 {
					testbed.Pass(raftRPCTimeout - time.Second)
					_, _ = theirs.Write(make([]byte, 1<<10)) // the test notices below what is missing
				}
				_, _ = io.ReadFull(theirs, make([]byte, 1))
			}
			_, _ = theirs.Write(make([]byte, 1))
		})
		for i := range 2 {
			if n, err := io.ReadFull(stream, make([]byte, 20<<10)); err != nil {
				t.Fatalf("message %d broke off after %d bytes: %v", i, n, err)
			}
			testbed.NoErr(t, testbed.ErrOf(stream.Write([]byte{1})))
		}
		began := time.Now()
		if n, err := io.ReadFull(stream, make([]byte, 2)); n != 1 || err == nil {
			t.Errorf("of a message that stops %d bytes were read: %v", n, err)
		}
		if took := time.Since(began); took != raftRPCTimeout {
			t.Errorf("it was given up after %v", took)
		}
	})
}

// A request for a vote is handed to Raft under the ID of a replica that has a vote there, with all else as it was; so is one for a pre-vote.
func TestVotesForNewcomers(t *testing.T) {
	configured := func() []raft.Server {
		return []raft.Server{{ID: "r1", Suffrage: raft.Voter}, {ID: "r2", Suffrage: raft.Voter}, {ID: "r3", Suffrage: raft.Nonvoter}}
	}
	for from, want := range map[string]string{"r1": "r1", "r2": "r2", "r3": "r2", "r4": "r2"} {
		header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(from), Addr: []byte(from + ":7431")}
		vote, pre, entries := &raft.RequestVoteRequest{RPCHeader: header, Term: 7}, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 7}, &raft.AppendEntriesRequest{RPCHeader: header}
		for _, command := range []any{vote, pre, entries} {
			admitCandidate(command, configured)
		}
		for _, h := range []raft.RPCHeader{vote.RPCHeader, pre.RPCHeader} {
			if string(h.ID) != want || string(h.Addr) != from+":7431" || vote.Term != 7 {
				t.Errorf("%s asks for a vote as %s at %s, want %s", from, h.ID, h.Addr, want)
			}
		}
		if string(entries.ID) != from || string(header.ID) != from {
			t.Errorf("%s sends entries as %s", from, entries.ID)
		}
	}
	vote := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("r4")}}
	if admitCandidate(vote, func() []raft.Server { return nil }); string(vote.ID) != "r4" {
		t.Errorf("without a configuration, r4 asks as %s", vote.ID)
	}
}
