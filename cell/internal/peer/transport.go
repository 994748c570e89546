package peer

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// raftRPCTimeout limits one Raft RPC, and each 256 KB of a snapshot. It is short: a peer that vanished silently
// may wait that long for a new connection.
const raftRPCTimeout = 5 * time.Second

// MaxIdleStreams is how many idle streams each peer keeps: heartbeats and replication use one each, votes
// sometimes a third.
const MaxIdleStreams = 3

// Transport is hashicorp/raft's transport over the streams of a Port, with three changes. Safety depends on
// SetHeartbeatHandler and capCommit; that a cell finds a master depends on admitCandidate.
//
// It embeds the concrete type, for every optional interface. Without raft.WithPreVote, Raft would turn
// pre-votes off, with only a log line.
type Transport struct {
	*raft.NetworkTransport
	port     *Port
	ready    chan struct{} // closed by StartReceiving
	calls    chan raft.RPC // messages from others, on their way to Raft; see passCalls
	sent     appendChange
	received appendChange
	away     *awayPeers
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts Raft's transport on the port. The transport closes the port.
func NewTransport(port *Port, logger *RaftLog) *Transport {
	return newTransport(port, logger, capCommit, capCommit)
}

// newTransport is NewTransport with the changes to sent and received entries.
func newTransport(port *Port, logger *RaftLog, sent, received appendChange) *Transport {
	ready := make(chan struct{})
	return &Transport{
		port:     port,
		ready:    ready,
		calls:    make(chan raft.RPC),
		sent:     sent,
		received: received,
		away:     logger.away,
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream:                  raftStreams{port, ready},
			MaxPool:                 MaxIdleStreams,
			Timeout:                 raftRPCTimeout,
			Logger:                  logger,
			MsgpackUseNewTimeFormat: true,
		}),
	}
}

// SetHeartbeatHandler ignores the handler, so that heartbeats reach Raft through Consumer and its main
// goroutine, as other messages do.
//
// The transport would call the handler on the connection's goroutine, where it runs Raft.appendEntries. A
// heartbeat from a newer leader then raises this replica's term and makes it a follower behind the back of
// Raft.leaderLoop, which may wait in its select. The next Apply is dispatched (Raft.dispatchLogs) with the
// *new* term, in which this replica was never elected. Its log then has an entry with the index and term of one
// of the real leader's, Raft takes the two for the same (log matching), and the replicas' states differ
// permanently: hashicorp/raft issue 695. TestHeartbeatsCannotForkTheLog shows it.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(nil)
}

// Unanswering returns the peers that, as Raft complains, do not answer.
func (t *Transport) Unanswering() []string { return t.away.unanswering() }

// RequestVote asks for a vote, and records that the peer answers.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	err := t.NetworkTransport.RequestVote(id, target, args, resp)
	if err == nil {
		t.away.answered(string(id), false)
	}
	return err
}

// RequestPreVote is RequestVote before an election.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	err := t.NetworkTransport.RequestPreVote(id, target, args, resp)
	if err == nil {
		t.away.answered(string(id), false)
	}
	return err
}

// Close closes the port with every connection, so that no goroutine here or at a peer stays in a read. It is idempotent.
func (t *Transport) Close() error {
	err := t.NetworkTransport.Close() // closes the port through raftStreams
	t.CloseStreams()
	return err
}

// StartReceiving lets Raft receive messages. Call it once, when this replica's hellos say how far its log goes:
// else a hello could say less than Raft has acknowledged. configured returns Raft's newest configuration.
func (t *Transport) StartReceiving(configured func() []raft.Server) {
	t.port.work.Go(func() { t.passCalls(configured) })
	close(t.ready)
}

// Consumer returns the messages of other replicas for Raft.
func (t *Transport) Consumer() <-chan raft.RPC { return t.calls }

// passCalls passes messages to Raft until the port is closed. It changes those that Raft would handle wrongly.
func (t *Transport) passCalls(configured func() []raft.Server) {
	for {
		select {
		case call := <-t.NetworkTransport.Consumer():
			if a, isAppend := call.Command.(*raft.AppendEntriesRequest); isAppend {
				call.Command = t.received(a)
			}
			admitCandidate(call.Command, configured)
			select {
			case t.calls <- call:
			case <-t.port.done: // the sender gives up with its connection
				return
			}
		case <-t.port.done:
			return
		}
	}
}

// Silence makes the replica fall silent at once; see Port.silence.
func (t *Transport) Silence() { t.port.silence() }

// Hush makes the replica fall silent for a while; see Port.hush.
func (t *Transport) Hush(while time.Duration) { t.port.hush(while) }

type raftStreams struct {
	port  *Port
	ready <-chan struct{}
}

var _ raft.StreamLayer = raftStreams{}

// Accept waits for an inbound stream with an accepted hello. On a silent port it waits for the close, since the
// transport would log errors in a loop.
func (s raftStreams) Accept() (net.Conn, error) {
	select {
	case <-s.ready:
	case <-s.port.done:
		return nil, errSilenced
	}
	select {
	case conn := <-s.port.streams:
		return &inboundStream{portConn: conn}, nil
	case <-s.port.done:
		return nil, errSilenced
	}
}

func (s raftStreams) Close() error {
	s.port.close()
	return nil
}

// Addr returns this replica's address in the Raft configuration, which may differ from the listener's.
func (s raftStreams) Addr() net.Addr { return raftAddr(s.port.Address) }

// Dial connects to the replica with this Raft address.
func (s raftStreams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, ok := s.port.MemberAt(string(address))
	if !ok {
		return nil, &api.Error{
			Code:    api.Unavailable,
			Op:      "connect",
			Path:    string(address),
			Replica: s.port.ID,
			Message: "no member of the cell has this raft address: is the configuration the same on every replica?",
		}
	}
	return s.port.dial(raftStream, id, string(address), timeout)
}

// inboundStream is a connection for another replica's messages. It may be quiet between messages; within one,
// the next bytes must come within raftRPCTimeout. Raft reads a snapshot on its main goroutine: if a sender
// stopped halfway, this replica would neither answer nor vote.
type inboundStream struct {
	*portConn
	within atomic.Bool // a message has begun to arrive, and is unanswered
}

func (s *inboundStream) Read(p []byte) (int, error) {
	if s.within.Load() {
		defer time.AfterFunc(raftRPCTimeout, s.abort).Stop()
	}
	n, err := s.portConn.Read(p)
	if n > 0 {
		s.within.Store(true)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // else this replica closed it
		//mutant: _ = s.from //by TestDeadMasterIsReplacedAtOnce of ./cell/celltest
		s.port.Lost(s.from)
	}
	return n, err
}

// Write implements net.Conn. It writes an answer.
func (s *inboundStream) Write(p []byte) (int, error) {
	s.within.Store(false)
	return s.portConn.Write(p)
}

type raftAddr string

func (raftAddr) Network() string { return "tcp" }

func (a raftAddr) String() string { return string(a) }
