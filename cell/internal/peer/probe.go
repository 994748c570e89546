package peer

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// A probe asks a replica for its current Raft term. The fence is built on it,
// and all reads, lease grants and sequencer checks are built on the fence, so
// here is why it proves what it is to prove:
//
// Claim. Let this replica lead term T, and let a majority of the voters of its
// latest configuration, itself among them if it is one, be at a term <= T when
// asked after an instant t0. Then no leader of a term above T was elected
// before t0, so every write acknowledged before t0 is one of this replica's or
// of a predecessor's.
//
// Why. Suppose some were, and take that of the smallest term T' > T. A majority
// of the voters of *its* configuration had voted for it. A voter raises and
// publishes its term before it answers a vote: Raft.requestVote calls
// Raft.setCurrentTerm, which writes the stable store and then the variable that
// Raft.CurrentTerm reads, before the deferred Respond; the candidate does so in
// Raft.electSelf before it counts its own vote. (Raft.requestPreVote changes no
// term, but a pre-vote elects nobody.) Terms only grow. So since before t0 that
// majority has been above T, and if it shares a member with ours, that member
// would have answered so.
//
//   - Restarts: Raft.NewRaft loads the term from the stable store, and a probe
//     is not answered before that (raftPort.answer). A replica whose store was
//     wiped, or is older than what it has acknowledged, is refused by its peers
//     (docs/adr/0009-bootstrap-and-identity.md).
//   - Leadership transfer: the TimeoutNow message makes its target skip the
//     pre-vote and the voters skip their loyalty to a known leader, nothing
//     else: electSelf and requestVote raise the terms as above.
//   - Membership: Raft changes one voter at a time, and
//     Raft.configurationChangeChIfStable starts a change only after the last one
//     and an entry of this term have committed. The new leader's configuration
//     entries are of terms <= T (nobody led a term between T and T'), and those
//     of term T are ours. Of ours, all but the newest have committed, hence are
//     in its log; the newest may be. (If the newest was appended after T' was
//     elected it can never commit, for its majority would need a voter that has
//     left term T, so there is at most one such.) Thus its configuration is our
//     latest or the one before, and majorities of two configurations that
//     differ in one voter share a member. Raft.GetConfiguration may lag the log
//     by that one entry for a moment (Raft.appendConfigurationEntry stores the
//     entry first); the argument is the same with the two exchanged. Non-voters
//     count for nothing.
//
// The question does not pass Raft's main goroutine, which may be in an fsync.
// It needs no clock. An answer proves nothing about questions that were asked
// after it was sent for: that is what raft.VerifyLeader gets wrong.

// Report is the answer to a probe.
type Report struct {
	Term uint64 // Raft.CurrentTerm
	Last uint64 // Raft.LastIndex: how far its log goes; says who may take over, and proves nothing

	Applied uint64 // the last command applied; it and all before are held and committed
	History uint64 // the running hash of what was applied up to there
}

// Frames of a probe stream: the question is its number; the answer is the
// number, the term, the last index, the applied index and the running hash, all
// big-endian.
const (
	questionSize = 8
	answerSize   = 40
)

const (
	probeDialTimeout = time.Second
	probeStall       = time.Second            // an answer outstanding for longer condemns its connection
	probeWindow      = 16                     // questions in flight to one replica
	maxAsked         = 64                     // callers waiting for one replica's answer; the oldest goes
	minProbeRetry    = 20 * time.Millisecond  // between attempts to connect, growing to
	maxProbeRetry    = 500 * time.Millisecond // this
)

// serveProbe answers the questions of one connection until it ends. It is the
// only place where a term is reported.
func (p *Port) serveProbe(c *portConn) {
	defer func() { _ = c.Close() }() // nothing is buffered that a failing close could lose
	p.mu.Lock()
	report := p.report
	p.mu.Unlock()
	if report == nil {
		return // Raft does not run yet; the prober tries again
	}
	in := bufio.NewReaderSize(c, probeWindow*questionSize)
	var frame [answerSize]byte
	for {
		if _, err := io.ReadFull(in, frame[:questionSize]); err != nil {
			return
		}
		// Read after the question has arrived: the proof rests on it.
		r := report()
		binary.BigEndian.PutUint64(frame[8:], r.Term)
		binary.BigEndian.PutUint64(frame[16:], r.Last)
		binary.BigEndian.PutUint64(frame[24:], r.Applied)
		binary.BigEndian.PutUint64(frame[32:], r.History)
		if _, err := c.Write(frame[:]); err != nil {
			return
		}
	}
}

// Prober asks the other replicas for their terms, over one connection to each.
// It is for any goroutine. Goroutines: one per replica ever asked, which
// connects and sends, and one per connection, which receives; close waits for
// them.
type Prober struct {
	connect func(id, address string) (net.Conn, error)
	heard   func(id string, r Report)
	clock   session.Clock
	stop    chan struct{} // closed by close
	work    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	peers  map[string]*probePeer
	closed bool
}

// NewProber returns a prober that connects through the port. heard is told of
// every answer, before the caller of ask; it must not block.
func NewProber(port *Port, clock session.Clock, heard func(id string, r Report)) *Prober {
	return &Prober{
		heard: heard,
		connect: func(id, address string) (net.Conn, error) {
			return port.dial(probeStream, id, address, probeDialTimeout)
		},
		clock: clock,
		stop:  make(chan struct{}),
		peers: map[string]*probePeer{},
	}
}

// Ask asks a replica for its term and returns at once. reply is called, on a
// goroutine of the prober's and at most once, with the answer to a question that
// was sent after ask was called. It is never called if the replica does not
// answer, or if maxAsked newer callers wait. It must not block.
func (p *Prober) Ask(id, address string, reply func(Report)) {
	if peer := p.peer(id, address); peer != nil {
		peer.ask(reply)
	}
}

// peer returns the replica, nil after close.
func (p *Prober) peer(id, address string) *probePeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[id]
	switch {
	case p.closed:
		return nil
	case peer != nil && peer.address == address:
		return peer
	case peer != nil:
		close(peer.gone) // it has moved
	}
	peer = &probePeer{prober: p, id: id, address: address, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	p.peers[id] = peer
	p.work.Go(peer.run)
	return peer
}

// Close ends all connections and waits for the prober's goroutines.
func (p *Prober) Close() {
	p.mu.Lock()
	peers := p.peers
	p.peers = nil
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	p.mu.Unlock()
	for _, peer := range peers {
		peer.drop()
	}
	p.work.Wait()
}

// probePeer is one replica as the prober knows it.
type probePeer struct {
	prober  *Prober
	id      string
	address string
	wake    chan struct{} // holds a token when there may be something to send
	gone    chan struct{} // closed when the replica has another address now

	mu       sync.Mutex // guards what follows; never held across I/O
	conn     net.Conn   // nil while there is none
	asked    uint64     // the newest question's number
	sent     uint64     // the newest question sent on conn
	answered uint64     // the newest question answered on conn
	inFlight int        // questions sent on conn and not answered
	progress session.Instant
	waiting  []probeWait // ascending
}

// probeWait is a caller of ask: any answer to question number or later is his.
type probeWait struct {
	number uint64
	reply  func(Report)
}

func (q *probePeer) ask(reply func(Report)) {
	now := q.prober.clock()
	q.mu.Lock()
	q.asked++
	if len(q.waiting) == maxAsked {
		q.waiting = append(q.waiting[:0], q.waiting[1:]...)
	}
	q.waiting = append(q.waiting, probeWait{q.asked, reply})
	var stalled net.Conn
	if q.inFlight > 0 && now.Sub(q.progress) > probeStall {
		stalled = q.conn
	}
	q.mu.Unlock()
	if stalled != nil {
		_ = stalled.Close() // its reader finds out and a new one is made
	}
	q.nudge()
}

// nudge makes run look again.
func (q *probePeer) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drop closes the connection, if there is one.
func (q *probePeer) drop() {
	q.mu.Lock()
	conn := q.conn
	q.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // its reader finds out
	}
}

// run connects when there is a question, and sends. After a connection that
// brought no answer it waits before it makes the next.
func (q *probePeer) run() {
	retry := minProbeRetry
	for q.awaitWork(nil) {
		// Raft logs what it thinks of the peer; the probe need not repeat it.
		conn, err := q.prober.connect(q.id, q.address)
		if err == nil && q.converse(conn) {
			retry = minProbeRetry
			continue
		}
		if !q.awaitWork(time.After(retry)) {
			return
		}
		retry = min(2*retry, maxProbeRetry)
		q.nudge()
	}
}

// awaitWork waits for the timer, or without one for a nudge. It returns false
// when the peer is not wanted any more.
func (q *probePeer) awaitWork(timer <-chan time.Time) bool {
	wake := q.wake
	if timer != nil {
		wake = nil
	}
	select {
	case <-q.prober.stop:
		return false
	case <-q.gone:
		return false
	case <-timer:
	case <-wake:
	}
	return true
}

// converse uses one connection until it fails, and reports whether it brought
// any answer.
func (q *probePeer) converse(conn net.Conn) bool {
	q.mu.Lock()
	q.conn = conn
	q.sent, q.answered, q.inFlight = 0, 0, 0
	q.mu.Unlock()
	broken := make(chan struct{})
	var receiver sync.WaitGroup
	receiver.Go(func() {
		defer close(broken)
		q.receive(conn)
	})
	q.nudge()
	q.send(conn, broken)
	_ = conn.Close() // it failed, or is not wanted any more
	receiver.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conn = nil
	q.inFlight = 0
	if len(q.waiting) > 0 {
		q.nudge() // they are asked for on the next connection
	}
	return q.answered > 0
}

// send writes the newest question whenever there is one and room for it.
// Older ones need not be sent: an answer to the newest answers them.
func (q *probePeer) send(conn net.Conn, broken <-chan struct{}) {
	var frame [questionSize]byte
	for {
		select {
		case <-q.wake:
		case <-broken:
			return
		case <-q.prober.stop:
			return
		case <-q.gone:
			return
		}
		now := q.prober.clock()
		q.mu.Lock()
		number := q.asked
		if number == q.sent || q.inFlight == probeWindow {
			q.mu.Unlock()
			continue // receive nudges when an answer makes room
		}
		if q.inFlight == 0 {
			q.progress = now
		}
		q.sent = number
		q.inFlight++
		q.mu.Unlock()
		binary.BigEndian.PutUint64(frame[:], number)
		if _, err := conn.Write(frame[:]); err != nil {
			return
		}
	}
}

// receive reads answers and passes them on, until the connection fails.
func (q *probePeer) receive(conn net.Conn) {
	in := bufio.NewReaderSize(conn, probeWindow*answerSize)
	var frame [answerSize]byte
	for {
		if _, err := io.ReadFull(in, frame[:]); err != nil {
			return
		}
		number := binary.BigEndian.Uint64(frame[:])
		report := Report{
			Term: binary.BigEndian.Uint64(frame[8:]), Last: binary.BigEndian.Uint64(frame[16:]),
			Applied: binary.BigEndian.Uint64(frame[24:]), History: binary.BigEndian.Uint64(frame[32:]),
		}
		ready, err := q.accept(number, q.prober.clock())
		if err != nil {
			return
		}
		q.prober.heard(q.id, report)
		for _, w := range ready {
			w.reply(report)
		}
	}
}

// accept takes the answer to a question and returns whose it is. It fails on an
// answer to a question that this connection did not carry, or carried before
// one that is answered already: then the peer is not what it claims to be.
func (q *probePeer) accept(number uint64, now session.Instant) ([]probeWait, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if number <= q.answered || number > q.sent {
		return nil, api.Errorf(api.Corrupt, "replica %s answers question %d; the open ones are %d to %d", q.id, number, q.answered+1, q.sent)
	}
	q.answered = number
	q.inFlight--
	q.progress = now
	if q.asked > q.sent {
		q.nudge()
	}
	n := 0
	for n < len(q.waiting) && q.waiting[n].number <= number {
		n++
	}
	ready := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return ready, nil
}
