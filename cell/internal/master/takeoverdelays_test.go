package master

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// A master that takes over times the lock-delays that it finds, each in full: before its end nobody has the lock, and then the
// waiter has it.
func TestDelayThatATakeoverFindsEnds(t *testing.T) {
	const delay = 7 * time.Second
	leave := func(s *raftfsm.State) {
		s.Tree.RestoreDelay("/f", namespace.Delay{ID: 1, Mode: api.Exclusive, For: delay})
	}
	inSolo(t, leave, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		h := c.open(t, "/ls/local/f", api.MayCreate).Handle
		began := time.Now()
		within, cancel := context.WithTimeout(t.Context(), 3*delay)
		defer cancel()
		acquire := raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: api.Exclusive}
		_, err := m.Locks.Acquire(within, requestFor(acquire, h))
		if waited := time.Since(began); err != nil || waited < delay-time.Second || waited > delay+time.Second {
			t.Errorf("Acquire returned %v after %v, want the lock after %v", err, waited, delay)
		}
	})
}
