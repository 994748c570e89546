package peer

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"
)

// A probe asks a replica for its current Raft term. The fence is built on probes, and all reads, lease grants
// and sequencer checks on the fence. This is why probes prove leadership:
//
// Claim. Let this replica lead term T, and let a majority of the voters of its latest configuration, itself
// among them if it is one, be at a term <= T when asked after an instant t0. Then no leader of a term above T
// was elected before t0, so every write acknowledged before t0 is one of this replica's or of a predecessor's.
//
// Why. Suppose one was, and take the one of the smallest term T' > T. A majority of the voters of *its*
// configuration had voted for it. A voter raises and publishes its term before it answers a vote:
// Raft.requestVote calls Raft.setCurrentTerm, which writes the stable store and then the variable that
// Raft.CurrentTerm reads, before the deferred Respond; the candidate does so in Raft.electSelf before it counts
// its own vote. (Raft.requestPreVote changes no term, but a pre-vote elects nobody.) Terms only grow. So since
// before t0 that majority has been above T. If it shares a member with ours, that member would have answered so.
//
//   - Restarts: Raft.NewRaft loads the term from the stable store, and no probe is answered before that
//     (Port.AnswerProbes). Peers refuse a replica whose store was wiped, or is older than what it has acknowledged
//     (docs/adr/0009-bootstrap-and-identity.md).
//   - Leadership transfer: the TimeoutNow message makes its target skip the pre-vote and the voters skip their loyalty
//     to a known leader, nothing else: electSelf and requestVote raise the terms as above.
//   - Membership: Raft changes one voter at a time, and Raft.configurationChangeChIfStable starts a change only after
//     the last one and an entry of this term have committed. The new leader's configuration entries are of terms <= T
//     (nobody led a term between T and T'), and those of term T are ours. Of ours, all but the newest have committed,
//     hence are in its log; the newest may be. (If the newest was appended after T' was elected it can never commit, for
//     its majority would need a voter that has left term T, so there is at most one such.) Thus its configuration is our
//     latest or the one before, and majorities of two configurations that differ in one voter share a member.
//     Raft.GetConfiguration may briefly lag the log by that one entry (Raft.appendConfigurationEntry stores the entry
//     first); the argument is the same with the two exchanged. Non-voters count for nothing.
//
// The question does not pass Raft's main goroutine, which may be in an fsync. It needs no clock. An answer
// proves nothing about questions asked after it was requested: raft.VerifyLeader gets that wrong.

// Report is the answer to a probe.
type Report struct {
	Term uint64 // Raft.CurrentTerm
	Last uint64 // Raft.LastIndex: shows who may take over, and proves nothing

	Applied uint64 // the last command applied; all up to it are held and committed
	History uint64 // the running hash up to there

	MaxLevel uint64 // the newest feature level that the replica supports

	Check Check // of its whole state, at its newest check point
}

// Frames of a probe stream: a question is a number; the answer is that number, the term, the last index, the
// applied index, the running hash, the newest feature level and the newest check, all big-endian. Earlier
// versions have zeros in place of a check.
const (
	questionSize = 8
	answerSize   = 64
)

const (
	probeDialTimeout = time.Second
	maxAnswerWait    = time.Second            // without an answer; then the connection is closed
	probeWindow      = 16                     // questions in flight to one replica
	maxAsked         = 64                     // callers that wait for one replica's answer; the oldest is dropped
	minProbeRetry    = 20 * time.Millisecond  // the first pause between attempts to connect
	maxProbeRetry    = 500 * time.Millisecond // the longest
)

// serveProbe answers the questions of one connection until it ends. Only here is a term reported.
func (p *Port) serveProbe(c *portConn) {
	defer func() { _ = c.Close() }() // nothing is buffered that a failing close could lose
	p.mu.Lock()
	report := p.report
	p.mu.Unlock()
	if report == nil {
		return // Raft does not run yet; the prober retries
	}
	in := bufio.NewReaderSize(c, probeWindow*questionSize)
	var frame [answerSize]byte
	for {
		if _, err := io.ReadFull(in, frame[:questionSize]); err != nil {
			return
		}
		// Read after the question has arrived: the proof depends on it.
		r := report()
		binary.BigEndian.PutUint64(frame[8:], r.Term)
		binary.BigEndian.PutUint64(frame[16:], r.Last)
		binary.BigEndian.PutUint64(frame[24:], r.Applied)
		binary.BigEndian.PutUint64(frame[32:], r.History)
		binary.BigEndian.PutUint64(frame[40:], r.MaxLevel)
		r.Check.put(frame[48:])
		if _, err := c.Write(frame[:]); err != nil {
			return
		}
	}
}
