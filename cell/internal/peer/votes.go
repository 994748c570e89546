package peer

import "github.com/hashicorp/raft"

// Raft as it is published has every replica grant its vote to a candidate that its own configuration does not have (Ongaro's
// dissertation, section 4.2.2): who has been away while a newcomer got a vote may be needed for a majority, and the newcomer may be the
// only one left whose log is complete. hashicorp/raft refuses such a candidate, and one that has no vote there yet, by its ID
// (Raft.requestVote and Raft.requestPreVote); then a cell could have a majority of its replicas and no master, for good. So such a request
// is handed to Raft under the ID of a replica that has a vote there.
//
// That is safe. The ID counts for nothing but this refusal: the vote is noted for the candidate's address and term, and granted once in a
// term, to one whose log is as complete as the voter's. The candidate counts the votes of its own newest configuration; majorities of two
// configurations that follow each other share a voter, so one that was elected lacks nothing that is committed, whatever those who voted
// for it know of the configuration. What the refusal is there for, that a replica which was removed disturbs the others, cannot be: its
// hello is refused by all that know, which has it stop, and its pre-vote by all that have a leader.

// admitCandidate has a request for a vote come from a replica that has a vote in the configuration.
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
