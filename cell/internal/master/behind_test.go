package master

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// meanwhile calls do while the next entry is on its way to the log. The log continues when do has
// returned.
func (s *soloMaster) meanwhile(first, do func()) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s.applying = func() {
		s.applying = nil
		close(entered)
		<-leave
	}
	first()
	<-entered
	do()
	synctest.Wait()
	close(leave)
}

// If the log refuses the first waiter the lock, the one behind it gets the lock
// as soon as that is known: no other event makes room for it.
func TestRefusedByTheLogMakesRoom(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		guarded := c[0].claim(h[0], api.Exclusive)
		guarded.Preconditions = []raftfsm.Precondition{{Lock: "/f", Mode: api.Exclusive, Generation: 1}} // not met
		var refused, waits <-chan lockAnswer
		m.meanwhile(func() { refused = c[0].wait(t.Context(), h[0], guarded) },
			func() { waits = c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive)) })
		if a := answered(t, refused); !errors.Is(a.err, api.BadSequencer) {
			t.Error(a.err)
		}
		if a := answered(t, waits); a.err != nil {
			t.Error(a.err)
		}
	})
}

// If the handle of the first waiter is closed, the one behind it gets the lock,
// if nothing else is in its way.
func TestClosedHandleMakesRoom(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		c[0].try(t, h[0], api.Shared)
		claim := c[1].claim(h[1], api.Exclusive)
		writer := c[1].wait(t.Context(), h[1], claim)
		reader := c[2].wait(t.Context(), h[2], c[2].claim(h[2], api.Shared))
		closing := c[1].mutation()
		closing.Outstanding = []api.RequestNumber{claim.Mutation.Number, closing.Number}
		if err := m.Files.Close(t.Context(), closing, h[1]); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, writer); !errors.Is(a.err, api.HandleClosed) {
			t.Error(a.err)
		}
		if a := answered(t, reader); a.err != nil {
			t.Error(a.err)
		}
	})
}
