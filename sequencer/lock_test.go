package sequencer

import (
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A request of the newest token may enter after its token was published, and before older requests are cancelled. It is no
// older request.
func TestSupersedeSparesTheNewest(t *testing.T) {
	s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/a"), Mode: api.Exclusive, Generation: 57}
	l := newLock()
	l.raise(57)
	newest, waited, err := l.enter(t.Context(), s)
	if err != nil || waited {
		t.Fatal(waited, err)
	}
	l.supersede(57)
	if err := newest.ctx.Err(); err != nil {
		t.Errorf("the newest request was cancelled: %v", err)
	}
	l.supersede(58)
	if newest.ctx.Err() == nil {
		t.Error("an older request goes on")
	}
	l.leave(newest)
}
