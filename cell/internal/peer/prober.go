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

// Prober asks the other replicas for their terms, over one connection to each. It is safe for concurrent use.
// Close waits for its goroutines: one for each replica ever asked, which connects and sends, and one for each
// connection, which receives.
type Prober struct {
	connect func(id, address string) (net.Conn, error)
	heard   func(id string, r Report)
	clock   session.Clock
	stop    chan struct{} // closed by Close
	work    sync.WaitGroup

	mu    sync.Mutex            // guards peers
	peers map[string]*probePeer // nil after Close
}

// NewProber returns a prober for the port. It calls heard with every answer, before the caller's reply; heard
// must not block.
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

// Ask asks a replica for its term, without waiting. A goroutine of the prober calls reply, at most once, with
// the answer to a question sent after the call: never if the replica does not answer, or if maxAsked later
// callers wait. reply must not block.
func (p *Prober) Ask(id, address string, reply func(Report)) {
	if peer := p.peerAt(id, address); peer != nil {
		peer.ask(reply)
	}
}

// peerAt returns the replica with an address, nil after Close.
func (p *Prober) peerAt(id, address string) *probePeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[id]
	switch {
	case p.peers == nil:
		return nil
	case peer != nil && peer.address == address:
		return peer
	case peer != nil:
		close(peer.gone) // the replica has another address
	}
	peer = &probePeer{
		prober:  p,
		id:      id,
		address: address,
		wake:    make(chan struct{}, 1),
		gone:    make(chan struct{}),
	}
	p.peers[id] = peer
	p.work.Go(peer.askQuestions)
	return peer
}

// Close ends all connections and waits for the prober's goroutines.
func (p *Prober) Close() {
	p.mu.Lock()
	peers := p.peers
	p.peers = nil
	if peers != nil {
		close(p.stop)
	}
	p.mu.Unlock()
	for _, peer := range peers {
		peer.closeConnection()
	}
	p.work.Wait()
}

type probePeer struct {
	prober  *Prober
	id      string
	address string
	wake    chan struct{} // full when there may be something to send
	gone    chan struct{} // closed when the replica's address has changed

	mu       sync.Mutex // guards the fields below; never held across I/O
	conn     net.Conn   // nil without one
	asked    uint64     // the newest question's number
	sent     uint64     // the newest question sent on conn
	answered uint64     // the newest question answered on conn
	inFlight int        // unanswered questions on conn
	progress session.Instant
	waiting  []probeWait // ascending
}

// probeWait is a caller of ask. The answer to its question, or to a later one, releases it.
type probeWait struct {
	number uint64
	reply  func(Report)
}

func (q *probePeer) ask(reply func(Report)) {
	q.mu.Lock()
	q.asked++
	if len(q.waiting) == maxAsked {
		q.waiting = append(q.waiting[:0], q.waiting[1:]...)
	}
	q.waiting = append(q.waiting, probeWait{q.asked, reply})
	var stalled net.Conn
	if q.inFlight > 0 && q.prober.clock().Sub(q.progress) > maxAnswerWait {
		stalled = q.conn
	}
	q.mu.Unlock()
	if stalled != nil {
		_ = stalled.Close() // the receiver notices; askQuestions reconnects
	}
	q.nudge()
}

// nudge makes askQuestions or send look for a question.
func (q *probePeer) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *probePeer) closeConnection() {
	q.mu.Lock()
	conn := q.conn
	q.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // the receiver notices
	}
}

// askQuestions connects when there is a question, and sends. After a connection without an answer, it pauses.
func (q *probePeer) askQuestions() {
	retry := minProbeRetry
	for q.awaitWork(nil) {
		// Raft logs an unreachable peer; the prober does not repeat it.
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

// awaitWork waits for the timer, or without one for a nudge. It returns false when the peer is no longer needed.
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

// converse uses one connection until it fails, and reports whether an answer came.
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
	_ = conn.Close() // it failed, or is no longer needed
	receiver.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conn = nil
	q.inFlight = 0
	if len(q.waiting) > 0 {
		q.nudge() // to ask for them on the next connection
	}
	return q.answered > 0
}

// send writes the newest question when there is room. An answer to it also answers older questions.
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
		q.mu.Lock()
		number := q.asked
		if number == q.sent || q.inFlight == probeWindow {
			q.mu.Unlock()
			continue // receive nudges when an answer makes room
		}
		if q.inFlight == 0 {
			q.progress = q.prober.clock()
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

func (q *probePeer) receive(conn net.Conn) {
	in := bufio.NewReaderSize(conn, probeWindow*answerSize)
	var frame [answerSize]byte
	for {
		if _, err := io.ReadFull(in, frame[:]); err != nil {
			return
		}
		number := binary.BigEndian.Uint64(frame[:])
		report := Report{
			Term:     binary.BigEndian.Uint64(frame[8:]),
			Last:     binary.BigEndian.Uint64(frame[16:]),
			Applied:  binary.BigEndian.Uint64(frame[24:]),
			History:  binary.BigEndian.Uint64(frame[32:]),
			MaxLevel: binary.BigEndian.Uint64(frame[40:]),
			Check:    checkIn(frame[48:]),
		}
		ready, err := q.takeAnswer(number)
		if err != nil {
			return
		}
		q.prober.heard(q.id, report)
		for _, w := range ready {
			w.reply(report)
		}
	}
}

// takeAnswer matches an answer to its callers. It fails on an answer to a question not yet sent or already
// answered: then the peer is faulty.
func (q *probePeer) takeAnswer(number uint64) ([]probeWait, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if number <= q.answered || number > q.sent || q.inFlight == 0 {
		return nil, api.Errorf(api.Corrupt, "replica %s answers question %d; the open ones are %d to %d", q.id, number, q.answered+1, q.sent)
	}
	q.answered = number
	if q.inFlight--; q.inFlight > 0 {
		q.progress = q.prober.clock()
	}
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
