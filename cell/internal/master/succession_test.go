package master

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// Waiters for the lock of a node that is gone are not offered the lock of a later node of that
// name, and waiters of the later node are not offered the lock of the old one.
func TestSuccessorsAreOfOneNode(t *testing.T) {
	for _, oldFirst := range []bool{true, false} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			c, h := lockers(t, m)
			author, id := c[2], h[2]
			remove := author.mutation()
			if _, err := m.Files.Change(t.Context(), id, namespace.ToWrite, remove, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: remove, Node: id.Node, Handle: id.Owner.Handle}}); err != nil {
				t.Fatal(err)
			}
			young := c[1].open(t, "/ls/local/f", api.MayCreate).Handle
			var gone, waits <-chan lockAnswer
			old := func() { gone = c[0].wait(t.Context(), h[0], c[0].claim(h[0], api.Shared)) }
			fresh := func() { waits = c[1].wait(t.Context(), young, c[1].claim(young, api.Shared)) }
			if oldFirst {
				m.congested(old)
				fresh()
			} else {
				m.congested(func() { fresh(); old() })
			}
			if a := answered(t, waits); a.err != nil || a.Lock != young.Node {
				t.Error(a.err, a.Lock)
			}
			if a := answered(t, gone); !errors.Is(a.err, api.HandleClosed) {
				t.Error(a.err, a.Lock)
			}
		})
	}
}

// The same for a hand-over: a waiter for the lock of a node that is gone would hold another lock by
// a handle that cannot release it.
func TestHandOverIsOfOneNode(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		remove := c[2].mutation()
		if _, err := m.Files.Change(t.Context(), h[2], namespace.ToWrite, remove, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: remove, Node: h[2].Node, Handle: h[2].Owner.Handle}}); err != nil {
			t.Fatal(err)
		}
		holder, young := c[2].open(t, "/ls/local/f", api.MayCreate).Handle, c[1].open(t, "/ls/local/f", api.MayCreate).Handle
		held := c[2].try(t, holder, api.Exclusive)
		waits := c[1].wait(t.Context(), young, c[1].claim(young, api.Shared))
		var gone <-chan lockAnswer
		m.congested(func() { gone = c[0].wait(t.Context(), h[0], c[0].claim(h[0], api.Shared)) })
		if err := m.Locks.Release(t.Context(), c[2].mutation(), holder, held.Generation); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, waits); a.err != nil {
			t.Error(a.err)
		}
		if a := answered(t, gone); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) != 1 {
			t.Errorf("%v; the lock is held by %v", a.err, m.holders())
		}
	})
}
