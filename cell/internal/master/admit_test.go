package master

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A call that was sent to the master of another epoch is refused, whatever it asks. So
// no copy of a request that was answered without the log arrives at a later master,
// which knows nothing of that answer: an Open that found its node would make it anew
// after it was deleted.
func TestCallOfAnotherEpochIsRefused(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		id := m.client(t, 1).who.Session
		for epoch, want := range []error{api.StaleEpoch, nil, api.NotMaster} {
			if err := m.Sessions.Admit(Caller{Session: id, Epoch: api.Epoch(epoch)}); !errors.Is(err, want) {
				t.Errorf("a call of epoch %d in epoch 1: %v, want %v", epoch, err, want)
			}
		}
	})
}
