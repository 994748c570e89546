package master

import (
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// No node is created whose name has another normal form, by an Open or in a transaction; the refusal has the name to use. What
// is there, as a cell below the level has made it, is opened, written and deleted, and things are created in it.
func TestNamesAreCreatedInNFC(t *testing.T) {
	const decomposed, composed = "cafe\u0301", "caf\u00e9"
	inSolo(t, func(s *raftfsm.State) { s.Level = raftfsm.MaxLevel - 1 }, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		c.open(t, "/ls/local/"+decomposed, api.MayCreate)
		next := *m.fsm.Load()
		next.Level = raftfsm.MaxLevel
		m.fsm.Store(&next)
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, api.InvalidPath) || !strings.Contains(err.Error(), `write it as "x caf\u00e9"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		commit := func(o ...raftfsm.Operation) (raftfsm.Result, error) {
			return m.Files.Txns.Commit(t.Context(), &raftfsm.Txn{Mutation: c.mutation(), Operations: o})
		}
		for _, create := range []api.Create{api.MayCreate, api.MustCreate} {
			_, err := m.Files.Open(t.Context(), c.asked("/ls/local/x "+decomposed, raftfsm.Open{Create: create}))
			refused("an Open", err)
			r, err := commit(raftfsm.Operation{Name: "/" + composed, Create: api.MayCreate}, raftfsm.Operation{Name: "/x " + decomposed, Create: create})
			if refused("a transaction", err); r.Refusal == nil || r.Refusal.Step != 2 {
				t.Errorf("step %+v is refused", r.Refusal)
			}
		}
		if _, there := m.epoch.state().Tree.Get("/" + composed); there {
			t.Error("a transaction that was refused has done something")
		}
		asked := c.asked("/ls/local/x "+decomposed, raftfsm.Open{Create: api.MustExist})
		if _, err := m.Files.Open(t.Context(), asked); !errors.Is(err, api.NotFound) {
			t.Errorf("an Open of what has to be there: %v", err)
		}
		if n := m.handlesOf(c.who.Session); n != 1 {
			t.Errorf("%d handles; the refused ones have left some", n)
		}

		c.open(t, "/ls/local/"+composed, api.MustCreate)
		c.open(t, "/ls/local/"+decomposed, api.MayCreate)
		if _, err := commit(raftfsm.Operation{Name: "/" + decomposed, Create: api.MayCreate, Contents: []byte("x")}); err != nil {
			t.Errorf("what was there cannot be written: %v", err)
		}
		if _, err := commit(raftfsm.Operation{Name: "/" + decomposed, Delete: true}); err != nil {
			t.Errorf("what was there cannot be deleted: %v", err)
		}
		_, err := m.Files.Open(t.Context(), c.asked("/ls/local/"+decomposed, raftfsm.Open{Create: api.MayCreate}))
		if !errors.Is(err, api.InvalidPath) {
			t.Errorf("it is created again: %v", err)
		}
	})
}
