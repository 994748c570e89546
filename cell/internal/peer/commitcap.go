package peer

import "github.com/hashicorp/raft"

// appendChange returns the request to append entries that stands for another one. It does not change that one, which
// Raft may use again.
type appendChange func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest

// capCommit returns a request that calls no entry committed beyond the last one that it shows: those up to
// PrevLogEntry, which it has compared with the receiver's log, and those that it brings.
//
// Raft.appendEntries (hashicorp/raft v1.7.3) commits min(LeaderCommitIndex, its own last index), and the Raft paper
// says min(leaderCommit, index of last new entry). Behind the last entry of the message the receiver may have entries
// of a deposed leader, which were never committed. It would apply them, and so differ from the other replicas. A new leader sends such a
// message if it has waited (Raft.replicateTo, after a failure) between its look at the end of its log and that at its
// commit index. So the sender caps, for receivers of version 0.1.0, and the receiver caps, for senders of that version.
// TestReplicasApplyTheSame shows what happens otherwise. To be removed when hashicorp/raft does the same: docs/upstream.
func capCommit(a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	capped := *a
	capped.LeaderCommitIndex = min(a.LeaderCommitIndex, a.PrevLogEntry+uint64(len(a.Entries)))
	return &capped
}
