package peer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
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

// Check identifies a replica's whole state at a check point, an entry of the log. It fits into a probe's
// answer: if hashes agree by chance, a difference goes unnoticed, and nobody stops.
type Check struct {
	Index uint64 // of the check point, below 2^48; 0 without a check
	Kind  uint32 // hash of the entry's term and the software; only checks of one kind compare
	Sum   uint64 // 48 bits of a hash of the state
}

// NewCheck returns the check of a state. software names version and feature levels: others may encode a state
// differently.
func NewCheck(index, term uint64, software string, hash []byte) Check {
	//mutant: kind := sha256.Sum256(fmt.Appendf(nil, "%d", term)) //by TestOtherVersionsStopNobody of ./cell
	kind := sha256.Sum256(fmt.Appendf(nil, "%d %s", term, software))
	sum := sha256.Sum256(hash)
	return Check{Index: index & (1<<48 - 1), Kind: binary.BigEndian.Uint32(kind[:]), Sum: binary.BigEndian.Uint64(sum[:]) >> 16}
}

// put encodes a check in 16 bytes.
func (c Check) put(to []byte) {
	binary.BigEndian.PutUint64(to, c.Index<<16|c.Sum>>32)
	binary.BigEndian.PutUint64(to[8:], c.Sum<<32|uint64(c.Kind))
}

func checkIn(from []byte) Check {
	high, low := binary.BigEndian.Uint64(from), binary.BigEndian.Uint64(from[8:])
	return Check{Index: high >> 16, Kind: uint32(low), Sum: high&(1<<16-1)<<32 | low>>32}
}

// Differs reports whether two states at the same entry differ. Checks of different entries or kinds say nothing.
func (c Check) Differs(other Check) bool {
	return c.Index > 0 && c.Index == other.Index && c.Kind == other.Kind && c.Sum != other.Sum
}

// Contradicted returns the voters that contradict a replica, if a majority agrees on another state at own's
// check point. Only one state has a majority, so only a minority is contradicted. In a cell of three or more,
// one faulty replica contradicts nobody alone.
func Contradicted(own Check, others map[string]Check, voters []string) (by []string, sum uint64) {
	having := map[uint64][]string{}
	for _, id := range voters {
		if theirs, heard := others[id]; heard && own.Differs(theirs) {
			having[theirs.Sum] = append(having[theirs.Sum], id)
		}
	}
	for sum, ids := range having {
		//mutant: if len(ids) > 0 {
		if len(ids) > len(voters)/2 {
			slices.Sort(ids)
			return ids, sum
		}
	}
	return nil, 0
}
