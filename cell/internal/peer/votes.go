package peer

import "github.com/hashicorp/raft"

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
