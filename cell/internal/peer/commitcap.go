package peer

import "github.com/hashicorp/raft"

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
