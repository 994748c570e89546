package master

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A call that was sent to the master of another epoch is refused. A request may be answered without
// the log, so a later master does not know of the answer: it must not accept a copy of the request.
// An Open that found its node would create it again after its deletion.
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
