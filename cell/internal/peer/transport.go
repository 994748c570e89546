package peer

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// raftRPCTimeout bounds one Raft RPC, that of a snapshot in proportion to its size (this
// long for every 256 KB). It is short because a peer that vanished silently and has come
// back may have to wait for as long before a new connection is made.
const raftRPCTimeout = 5 * time.Second

// MaxIdleStreams is how many idle streams are kept for each peer: heartbeats and
// replication use one each, votes sometimes a third.
const MaxIdleStreams = 3

// Transport is Raft's network: hashicorp/raft's own transport over the streams of a
// Port, with three changes: safety depends on those of SetHeartbeatHandler and capCommit, and that a
// cell finds a master on that of admitCandidate.
//
// The concrete type is embedded so that it has every optional interface that Raft asks
// for. Without raft.WithPreVote Raft would turn pre-votes off, and say so in one log
// line only.
type Transport struct {
	*raft.NetworkTransport
	port     *Port
	ready    chan struct{} // closed by StartReceiving
	calls    chan raft.RPC // what others send, on its way to Raft; see passCalls
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

// newTransport is NewTransport with what becomes of the entries that it sends, and of those that it receives.
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

// SetHeartbeatHandler ignores the handler, so that heartbeats reach Raft
// through Consumer and its main goroutine, as every other message does.
//
// The handler is a shortcut: the transport calls it on the connection's
// goroutine, where it runs Raft.appendEntries. When the heartbeat comes from a
// newer leader, that raises this replica's term and makes it a follower behind
// the back of Raft.leaderLoop, which may at that moment wait in its select; the next Apply it takes is then dispatched (Raft.dispatchLogs)
// with the *new* term, in which this replica was never elected. Its log then holds
// an entry that carries the same index and term as one of the real leader's,
// Raft takes the two for the same (log matching), and the replicas' states
// differ permanently: hashicorp/raft issue 695. TestHeartbeatsCannotForkTheLog
// shows it.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(nil)
}

// Unanswering returns the peers of which Raft complains that they do not answer.
func (t *Transport) Unanswering() []string { return t.away.unanswering() }

// RequestVote asks for a vote, and notes who answers.
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

// Close closes the port with every connection, so that neither this replica's
// goroutines nor its peers' stay in a read. It is idempotent.
func (t *Transport) Close() error {
	err := t.NetworkTransport.Close() // closes the port through raftStreams
	t.CloseStreams()
	return err
}

// StartReceiving lets Raft receive what other replicas send. It must be called once,
// when this replica's hellos say how far its log goes: before that Raft must acknowledge
// nothing, or a hello could say less than Raft has acknowledged. The function returns Raft's newest configuration.
func (t *Transport) StartReceiving(configured func() []raft.Server) {
	t.port.work.Go(func() { t.passCalls(configured) })
	close(t.ready)
}

// Consumer returns what other replicas send to Raft.
func (t *Transport) Consumer() <-chan raft.RPC { return t.calls }

// passCalls hands Raft what other replicas send, changed where Raft would do wrong with it, until the port is closed.
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

// raftStreams is the Port as raft.NetworkTransport sees it.
type raftStreams struct {
	port  *Port
	ready <-chan struct{}
}

var _ raft.StreamLayer = raftStreams{}

// Accept waits for an inbound stream whose hello was accepted. On a port that
// is silent it waits for the close: the transport would log any error in a loop.
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

// Close closes the port.
func (s raftStreams) Close() error {
	s.port.close()
	return nil
}

// Addr returns the address that the Raft configuration has for this replica,
// which need not be the one it listens on.
func (s raftStreams) Addr() net.Addr { return raftAddr(s.port.Address) }

// Dial connects to the replica that has this Raft address.
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

// inboundStream is a connection on which another replica sends messages. Between two
// messages it may be quiet; within one, the next bytes must come within raftRPCTimeout.
// Raft reads a snapshot on its main goroutine: if the sender stopped in the middle, or
// vanished, this replica would answer nobody until the connection broke, and vote for no
// other master.
type inboundStream struct {
	*portConn
	within atomic.Bool // a message has begun to arrive, and has not been answered
}

// Read implements net.Conn.
func (s *inboundStream) Read(p []byte) (int, error) {
	if s.within.Load() {
		defer time.AfterFunc(raftRPCTimeout, s.abort).Stop()
	}
	n, err := s.portConn.Read(p)
	if n > 0 {
		s.within.Store(true)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // else it was closed here
		//mutant: _ = s.from //by TestDeadMasterIsReplacedAtOnce of ./cell/celltest
		s.port.Lost(s.from)
	}
	return n, err
}

// Write implements net.Conn. What is written is an answer.
func (s *inboundStream) Write(p []byte) (int, error) {
	s.within.Store(false)
	return s.portConn.Write(p)
}

// raftAddr is a Raft address as a net.Addr.
type raftAddr string

// Network returns "tcp".
func (raftAddr) Network() string { return "tcp" }

// String returns the address.
func (a raftAddr) String() string { return string(a) }
