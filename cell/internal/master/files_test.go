package master

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// operate applies commands of an operator's session to the state, whatever the master is doing. Those of the entry that is
// being applied come after them.
func (s *soloMaster) operate(t *testing.T, commands ...func(by session.Mutation) raftfsm.Command) {
	t.Helper()
	next := *s.fsm.Load()
	operator := early(t, &next, silentSession(98))
	for _, command := range commands {
		with(t, &next, command(operator.mutation()))
	}
	s.fsm.Store(&next)
}

// allow raises the quota of handles.
func allow(handles int) func(by session.Mutation) raftfsm.Command {
	return func(by session.Mutation) raftfsm.Command {
		return raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: by, Principal: "p", Quota: api.Quota{Handles: handles}}}
	}
}

// keptTwo returns a handle on the file f, and a client beside the one that has it. Both keep their sessions until the test ends.
func (s *soloMaster) keptTwo(t *testing.T) (f Handle, c *soloClient) {
	t.Helper()
	author, c := s.client(t, 1), s.client(t, 2)
	go author.keep(t.Context())
	go c.keep(t.Context())
	return author.open(t, "/ls/local/f", api.MayCreate).Handle, c
}

// A refusal of an Open is on its way to the log, and its call has ended. By now the Open could be done, without the log:
// a copy of it is refused as well, for the refusal is the answer that any later copy gets.
func TestCopyOfRefusedOpen(t *testing.T) {
	for what, of := range map[string]struct {
		prepare func(s *raftfsm.State)
		ask     func(t *testing.T, m *soloMaster, c *soloClient, f Handle) OpenRequest
		permit  func(t *testing.T, m *soloMaster, f Handle)
		want    api.Code
	}{
		"by the quota of handles": {
			prepare: quota(t, api.Quota{Handles: 1}),
			ask: func(_ *testing.T, _ *soloMaster, c *soloClient, _ Handle) OpenRequest {
				return c.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate})
			},
			permit: func(t *testing.T, m *soloMaster, _ Handle) { m.operate(t, allow(9)) },
			want:   api.QuotaExceeded,
		},
		"by the quota of handles, of a node that must exist": {
			prepare: quota(t, api.Quota{Handles: 1}),
			ask: func(_ *testing.T, _ *soloMaster, c *soloClient, _ Handle) OpenRequest {
				return c.asked("/ls/local/f", raftfsm.Open{Create: api.MustExist})
			},
			permit: func(t *testing.T, m *soloMaster, _ Handle) { m.operate(t, allow(9)) },
			want:   api.QuotaExceeded,
		},
		"so that nobody drops a copy in vain": {
			ask: func(t *testing.T, m *soloMaster, c *soloClient, _ Handle) OpenRequest {
				m.client(t, 3).open(t, "/ls/local/f", api.MustExist) // has it in its cache
				return c.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate, Kind: api.Directory})
			},
			permit: func(t *testing.T, m *soloMaster, f Handle) {
				m.operate(t, func(by session.Mutation) raftfsm.Command {
					return raftfsm.Command{Delete: &raftfsm.Delete{Mutation: by, Node: f.Node}}
				}, func(by session.Mutation) raftfsm.Command {
					return raftfsm.Command{Open: &raftfsm.Open{Mutation: by, Name: f.Node.Name, Create: api.MustCreate, Kind: api.Directory}}
				})
			},
			want: api.NotDirectory,
		},
	} {
		t.Run(what, func(t *testing.T) {
			inSolo(t, of.prepare, func(t *testing.T, m *soloMaster) {
				f, c := m.keptTwo(t)
				q := of.ask(t, m, c, f)
				first, gaveUp := context.WithCancel(t.Context())
				defer gaveUp()
				copied := make(chan error, 1)
				m.applying.once(func() {
					gaveUp()
					synctest.Wait()
					of.permit(t, m, f)
					go func() {
						_, err := m.Files.Open(t.Context(), q)
						copied <- err
					}()
					synctest.Wait()
				})
				mustFail(t, errOf(m.Files.Open(first, q)), api.Uncertain, "the first")
				early := <-copied
				_, late := m.Files.Open(t.Context(), q)
				if !errors.Is(early, of.want) || !errors.Is(late, of.want) {
					t.Errorf("a copy that came before the log had refused the first: %v; one that came later: %v; want %v of both", early, late, of.want)
				}
				equal(t, m.handlesOf(c.who.Session), 0, "an Open that was refused has left %d handles")
				m.refusesNothing(t)
			})
		})
	}
}

// refusesNothing checks that no Open is marked as one that the log is asked to refuse.
func (s *soloMaster) refusesNothing(t *testing.T) {
	t.Helper()
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	failIf(t, len(s.tables.Handles.Refusing) > 0, "%d refusals are still on their way", len(s.tables.Handles.Refusing))
}

// Between the look at the quota and the entry that refuses, a copy of the Open finds room, and is done: that is the answer
// of both.
func TestCopyBeforeRefusal(t *testing.T) {
	inSolo(t, quota(t, api.Quota{Handles: 1}), func(t *testing.T, m *soloMaster) {
		_, c := m.keptTwo(t)
		q := c.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate})
		_, why := m.Files.reserveHandle(q)
		mustFail(t, why, api.QuotaExceeded)
		m.operate(t, allow(9))
		o := must(m.Files.Open(t.Context(), q))(t)
		done := func() {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			m.tables.Handles.EndRefusal(q.Handle.Owner)
		}
		if _, err := m.Files.refuseThen(t.Context(), q.Mutation, why, done); err != nil {
			t.Errorf("a copy of it was done, and its refusal is %v", err)
		}
		if again, err := m.Files.Open(t.Context(), q); err != nil || again.Handle != o.Handle || m.handlesOf(c.who.Session) != 1 {
			t.Errorf("a later copy: %v, %d handles", err, m.handlesOf(c.who.Session))
		}
		m.refusesNothing(t)
	})
}

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
			return m.Files.Commit(t.Context(), &raftfsm.Txn{Mutation: c.mutation(), Operations: o})
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
		fails(t, errOf(m.Files.Open(t.Context(), asked)), api.NotFound, "an Open of what has to be there")
		equal(t, m.handlesOf(c.who.Session), 1, "%d handles; the refused ones have left some")

		c.open(t, "/ls/local/"+composed, api.MustCreate)
		c.open(t, "/ls/local/"+decomposed, api.MayCreate)
		if _, err := commit(raftfsm.Operation{Name: "/" + decomposed, Create: api.MayCreate, Contents: []byte("x")}); err != nil {
			t.Errorf("what was there cannot be written: %v", err)
		}
		report(t, errOf(commit(raftfsm.Operation{Name: "/" + decomposed, Delete: true})), "what was there cannot be deleted")
		_, err := m.Files.Open(t.Context(), c.asked("/ls/local/"+decomposed, raftfsm.Open{Create: api.MayCreate}))
		fails(t, err, api.InvalidPath, "it is created again")
	})
}

// Of what a transaction deletes, nothing of its author's stays in the table of copies, as after a Delete: else the copies of names that come
// and go would stay until the session ends.
func TestTxnForgetsCopiesOfWhatItDeletes(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author := m.client(t, 1)
		for _, path := range []string{"/ls/local/a", "/ls/local/b"} {
			h := author.open(t, path, api.MayCreate).Handle
			if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || !cacheable {
				t.Fatal(cacheable, err)
			}
		}
		commit := func(o ...raftfsm.Operation) {
			t.Helper()
			must(m.Files.Commit(t.Context(), &raftfsm.Txn{Mutation: author.mutation(), Operations: o}))(t)
		}
		commit(raftfsm.Operation{Name: "/a", Delete: true}, raftfsm.Operation{Name: "/b", Create: api.MayCreate, Contents: []byte("x")})
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		copies := m.tables.Copyset.Names[author.who.Session]
		if copies["/a"] != nil || copies["/b"] == nil {
			t.Errorf("of what was deleted %v is there, of what was written %v", copies["/a"], copies["/b"])
		}
	})
}
