package peer

import (
	"errors"
	"net"
	"sync"
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

// NewTransport starts Raft's transport on the port. The transport closes the port. stored lowers an index to that of
// the last entry that this replica has on its disk; see disk.Stores.Stored.
func NewTransport(port *Port, logger *RaftLog, stored func(index uint64) uint64) *Transport {
	return newTransport(port, logger, capStored(stored), capCommit)
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

// AppendEntries sends entries, and remembers what the other replica then holds.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	args = t.sent(args)
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if err == nil {
		t.acknowledged(id, args, resp)
	}
	return err
}

// AppendEntriesPipeline is AppendEntries for entries in close succession.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &watchedPipeline{AppendPipeline: inner, sent: t.sent, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	p.work.Go(func() {
		p.forwardAnswers(func(f raft.AppendFuture) { t.acknowledged(id, f.Request(), f.Response()) })
	})
	return p, nil
}

// acknowledged records that a replica answers, and how far its log agrees with this leader's, at most up to the
// commit index of the request.
func (t *Transport) acknowledged(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	t.away.answered(string(id), args.PrevLogEntry != 0 || len(args.Entries) > 0) // a heartbeat has neither
	if !resp.Success {
		return
	}
	index := args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		index = args.Entries[n-1].Index
	}
	//mutant: _ = index
	t.port.Passport.NoteHeld(string(id), min(index, args.LeaderCommitIndex))
}

// watchedPipeline reads each answer before Raft does. Close waits for its goroutine.
type watchedPipeline struct {
	raft.AppendPipeline
	sent    appendChange
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	work    sync.WaitGroup
}

func (p *watchedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	return p.AppendPipeline.AppendEntries(p.sent(args), resp)
}

func (p *watchedPipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

func (p *watchedPipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	err := p.AppendPipeline.Close()
	p.work.Wait()
	return err
}

func (p *watchedPipeline) forwardAnswers(answered func(raft.AppendFuture)) {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			if f.Error() == nil { // does not wait: an answer arrives only when complete
				answered(f)
			}
			select {
			case p.answers <- f:
			case <-p.closed:
				return
			}
		case <-p.closed:
			return
		}
	}
}

// appendChange returns a request that replaces another, which stays unchanged since Raft may reuse it.
type appendChange func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest

// capCommit lowers a request's commit index to the last entry that the request shows: PrevLogEntry, compared
// with the receiver's log, or the last entry that it brings.
//
// Raft.appendEntries (hashicorp/raft v1.7.3) commits min(LeaderCommitIndex, its own last index); the Raft paper
// says min(leaderCommit, index of last new entry). Behind the message's last entry, the receiver may have
// uncommitted entries of a deposed leader. It would apply them, and differ from the others. A new leader sends
// such a message if it waited (Raft.replicateTo, after a failure) between reading the end of its log and its
// commit index. The sender caps for receivers of version 0.1.0, and the receiver for senders of it.
// TestReplicasApplyTheSame shows the fault. Remove this when hashicorp/raft does the same: docs/upstream.
func capCommit(a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	capped := *a
	capped.LeaderCommitIndex = min(a.LeaderCommitIndex, a.PrevLogEntry+uint64(len(a.Entries)))
	return &capped
}

// capStored is capCommit for requests of this replica. It also lowers the commit index to the last entry that is on this
// replica's disk: Raft takes entries for committed while they are written.
func capStored(stored func(index uint64) uint64) appendChange {
	return func(a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
		capped := capCommit(a)
		//mutant: _ = stored
		capped.LeaderCommitIndex = stored(capped.LeaderCommitIndex)
		return capped
	}
}

// In the published Raft, a replica votes for a candidate even if its own configuration lacks it (Ongaro's
// dissertation, section 4.2.2). A majority may need a replica that was away while a newcomer got a vote, and
// only the newcomer may have a complete log. hashicorp/raft rejects such a candidate, and one without a vote
// there yet, by its ID (Raft.requestVote and Raft.requestPreVote). A majority of replicas could then
// permanently have no master. So the transport passes such a request to Raft under the ID of a replica that has
// a vote there.
//
// That is safe. The ID serves only this check: Raft records the vote for the candidate's address and term, and
// grants it once in a term, to a candidate whose log is as complete as the voter's. The candidate counts votes
// of its own newest configuration. Majorities of two successive configurations share a voter, so an elected
// candidate has everything committed, whatever its voters know of the configuration. The check is against
// removed replicas that disturb the others. Here they cannot: all that know of the removal refuse their hellos,
// which stops them, and all that have a leader reject their pre-votes.

// admitCandidate replaces the ID in a request for a vote with that of a replica that has a vote here.
func admitCandidate(command any, configured func() []raft.Server) {
	var header *raft.RPCHeader
	switch request := command.(type) {
	case *raft.RequestVoteRequest:
		header = &request.RPCHeader
	case *raft.RequestPreVoteRequest:
		header = &request.RPCHeader
	default:
		return
	}
	voter := header.ID
	for _, s := range configured() {
		if s.Suffrage != raft.Voter {
			continue
		}
		if string(s.ID) == string(header.ID) {
			return
		}
		voter = []byte(s.ID)
	}
	header.ID = voter
}
