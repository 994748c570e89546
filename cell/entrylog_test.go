package cell

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// Only an error that Raft returns before it has appended an entry means that the entry will never
// be in the log. For any other error, a master must not tell the client that its change was not
// made.
func TestWhatAnErrorOfTheLogMeans(t *testing.T) {
	for err, want := range map[error]api.Code{
		raft.ErrNotLeader:                    api.NotMaster,
		raft.ErrEnqueueTimeout:               api.NotMaster,
		raft.ErrLeadershipTransferInProgress: api.NotMaster,
		raft.ErrLeadershipLost:               api.Uncertain,
		raft.ErrRaftShutdown:                 api.Uncertain,
		errors.New("anything else"):          api.Uncertain,
	} {
		if got := api.CodeOf(appendError(err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
