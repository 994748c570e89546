package peer

import (
	"testing"

	"github.com/hashicorp/raft"
)

// A request for a vote is handed to Raft under the ID of a replica that has a vote there, with all else as it was; so is one for a pre-vote.
func TestVotesForNewcomers(t *testing.T) {
	configured := func() []raft.Server {
		return []raft.Server{{ID: "r1", Suffrage: raft.Voter}, {ID: "r2", Suffrage: raft.Voter}, {ID: "r3", Suffrage: raft.Nonvoter}}
	}
	for from, want := range map[string]string{"r1": "r1", "r2": "r2", "r3": "r2", "r4": "r2"} {
		header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(from), Addr: []byte(from + ":7431")}
		vote, pre, entries := &raft.RequestVoteRequest{RPCHeader: header, Term: 7}, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 7}, &raft.AppendEntriesRequest{RPCHeader: header}
		for _, command := range []any{vote, pre, entries} {
			admitCandidate(command, configured)
		}
		for _, h := range []raft.RPCHeader{vote.RPCHeader, pre.RPCHeader} {
			if string(h.ID) != want || string(h.Addr) != from+":7431" || vote.Term != 7 {
				t.Errorf("%s asks for a vote as %s at %s, want %s", from, h.ID, h.Addr, want)
			}
		}
		if string(entries.ID) != from || string(header.ID) != from {
			t.Errorf("%s sends entries as %s", from, entries.ID)
		}
	}
	vote := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("r4")}}
	if admitCandidate(vote, func() []raft.Server { return nil }); string(vote.ID) != "r4" {
		t.Errorf("without a configuration, r4 asks as %s", vote.ID)
	}
}
