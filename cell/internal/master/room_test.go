package master

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// withOperators makes a list of operators in which only the principal ops is.
func withOperators(t *testing.T) func(s *raftfsm.State) {
	return func(s *raftfsm.State) {
		by := early(t, s, silentSession(97)).mutation()
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: by, Name: namespace.ACLFile("operators"), Kind: api.File, Create: api.MustCreate, Contents: []byte("ops\n")}})
	}
}

// put does a transaction.
func (c *soloClient) put(t *testing.T, by session.Mutation, operations ...raftfsm.Operation) error {
	t.Helper()
	return errOf(c.m.Files.Commit(t.Context(), &raftfsm.Txn{Mutation: by, Operations: operations}))
}

// A master whose memory has room for no more refuses what would make the tree larger: a new node, longer contents, a transaction that
// does either. What makes it smaller, or leaves it as large, is done.
func TestFullCellRefusesGrowth(t *testing.T) {
	inSolo(t, withOperators(t), func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		weight := func() int64 { return m.epoch.state().Tree.Counts().Weight() }
		file := c.opens(t, "/ls/local/f", raftfsm.Open{Create: api.MustCreate, Kind: api.File, Contents: make([]byte, 5000)}).Handle
		file.Rights |= namespace.ToChange
		m.coherence.maxWeight = weight() + 100
		set := func(length int) error { return c.set(t.Context(), c.mutation(), file, make([]byte, length)) }
		name := func(list string) error {
			by := c.mutation()
			return errOf(m.Files.Change(t.Context(), file, namespace.ToChange, by, raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: by, Node: file.Node, ACL: api.ACL{Read: list}}}))
		}
		create := func() error {
			return errOf(m.Files.Open(t.Context(), c.asked("/ls/local/new", raftfsm.Open{Create: api.MayCreate})))
		}
		step := func(name api.Name, length int) raftfsm.Operation {
			return raftfsm.Operation{Name: name, Create: api.MayCreate, Contents: make([]byte, length)}
		}
		for _, one := range []struct {
			name string
			do   func() error
			full bool
		}{
			{"longer contents that fit", func() error { return set(5100) }, false},
			{"longer contents", func() error { return set(5101) }, true},
			{"the same contents", func() error { return set(5100) }, false},
			{"a longer name of a list", func() error { return name("operators") }, true},
			{"a name of a list that is as long", func() error { return name("everyone") }, false},
			{"a new file", create, true},
			{"a transaction that writes more", func() error { return c.put(t, c.mutation(), step("/f", 5101)) }, true},
			{"a transaction that makes room for what it makes", func() error { return c.put(t, c.mutation(), step("/f", 10), step("/g", 50)) }, false},
			{"a deletion", func() error { return c.put(t, c.mutation(), raftfsm.Operation{Name: "/g", Delete: true}) }, false},
			{"a new file, when there is room", create, false},
		} {
			was := weight()
			switch err := one.do(); {
			case one.full && (!errors.Is(err, api.QuotaExceeded) || !strings.Contains(err.Error(), "max-contents-mib") || weight() != was):
				t.Errorf("%s: %v, and the tree weighs %d bytes after %d; want it refused because the cell is full", one.name, err, weight(), was)
			case !one.full && err != nil:
				t.Errorf("%s: %v", one.name, err)
			}
		}
		m.coherence.maxWeight = 1 // the memory has become less
		for _, err := range []error{set(5), set(5), set(4), c.put(t, c.mutation(), raftfsm.Operation{Name: "/f", Delete: true})} {
			report(t, err, "what makes a tree no larger that is too large")
		}
	})
}

// A request that was done before the cell was full is answered as it was, and one that was refused stays so when there is room again:
// what a master refuses is the answer of the log.
func TestFullCellAnswersCopies(t *testing.T) {
	inSolo(t, withOperators(t), func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		large := raftfsm.Operation{Name: "/f", Create: api.MayCreate, Contents: bytes.Repeat([]byte{'x'}, 1000)}
		done := c.mutation()
		noErr(t, c.put(t, done, large))
		m.coherence.maxWeight = 1
		report(t, c.put(t, done, large), "a copy of what was done")
		other := large
		other.Name = "/g"
		refused := c.mutation()
		for _, most := range []int64{1, 1 << 20} {
			m.coherence.maxWeight = most
			var e *api.Error
			if err := c.put(t, refused, other); !errors.As(err, &e) || e.Code != api.QuotaExceeded || !e.Final {
				t.Errorf("with room for %d bytes: %v, want it refused for good", most, err)
			}
		}
	})
}

// A change that is refused as things are, and would be done after what is on its way to the log, is refused in a full cell: nobody
// has weighed what it would be.
func TestFullCellRefusesWhatComesBehindRoom(t *testing.T) {
	inSolo(t, withOperators(t), func(t *testing.T, m *soloMaster) {
		c, other := m.client(t, 1), m.client(t, 2)
		noErr(t, c.put(t, c.mutation(), raftfsm.Operation{Name: "/a", Create: api.MustCreate}))
		weight := func() int64 { return m.epoch.state().Tree.Counts().Weight() }
		m.coherence.maxWeight = weight()
		entered, leave := m.holdNextEntry()
		first := later(func() error { return c.put(t, c.mutation(), raftfsm.Operation{Name: "/a", Create: api.MayCreate}) })
		<-entered
		second := later(func() error {
			return c.put(t, c.mutation(), raftfsm.Operation{Name: "/a", Delete: true}, raftfsm.Operation{Name: "/b", Create: api.MustCreate})
		})
		synctest.Wait()
		large := later(func() error {
			return other.put(t, other.mutation(), raftfsm.Operation{Name: "/a", Create: api.MustCreate, Contents: make([]byte, 100<<10)})
		})
		synctest.Wait()
		close(leave)
		report(t, <-first)
		report(t, <-second)
		fails(t, <-large, api.Exists, "of what is there")
		if weight() > m.coherence.maxWeight {
			t.Errorf("the tree weighs %d bytes, and may weigh %d", weight(), m.coherence.maxWeight)
		}
	})
}

// Operators may have a part more than others, so that they can mend a full cell; and no more.
func TestOperatorsMendFullCell(t *testing.T) {
	inSolo(t, withOperators(t), func(t *testing.T, m *soloMaster) {
		ops, c := m.clientOf(t, 1, func(c *raftfsm.CreateSession) { c.Principal = "ops" }), m.client(t, 2)
		m.coherence.maxWeight = 1 << 20
		put := func(name api.Name, length int64) {
			noErr(t, c.put(t, c.mutation(), raftfsm.Operation{Name: name, Create: api.MayCreate, Contents: make([]byte, length)}))
		}
		room := func() int64 { return m.coherence.maxWeight - m.epoch.state().Tree.Counts().Weight() }
		for _, name := range []api.Name{"/f0", "/f1", "/f2", "/f3"} {
			put(name, 0)
		}
		put("/f0", room()/4)
		put("/f1", room()/3)
		put("/f2", room()/2)
		put("/f3", room())
		list := raftfsm.Operation{Name: namespace.ACLFile("more"), Create: api.MayCreate, Contents: []byte("alice\n")}
		if err := c.put(t, c.mutation(), raftfsm.Operation{Name: "/g", Create: api.MayCreate}); !errors.Is(err, api.QuotaExceeded) {
			t.Errorf("a file of another's: %v", err)
		}
		report(t, ops.put(t, ops.mutation(), list), "a list of an operator's")
		list.Contents = bytes.Repeat([]byte("#"), 1<<20/operatorsShare/namespace.ListWeight)
		fails(t, ops.put(t, ops.mutation(), list), api.QuotaExceeded, "an operator who takes more than there is")
	})
}

// A cell of a level at which other versions may be replicas refuses growth with a cause that all of them know.
func TestFullCellOfLowerLevel(t *testing.T) {
	inSolo(t, func(s *raftfsm.State) { s.Level = 2 }, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.coherence.maxWeight = 1
		if _, err := m.Files.Open(t.Context(), c.asked("/ls/local/new", raftfsm.Open{Create: api.MayCreate})); !errors.Is(err, api.QuotaExceeded) || !strings.Contains(err.Error(), "below directory /") {
			t.Error(err)
		}
	})
}

// A change for which there is no room is refused before anybody is told to drop what it has cached.
func TestFullCellDisturbsNobody(t *testing.T) {
	inSolo(t, withOperators(t), func(t *testing.T, m *soloMaster) {
		c, caching := m.client(t, 1), m.client(t, 2)
		file := c.open(t, "/ls/local/f", api.MayCreate).Handle
		caching.open(t, "/ls/local/f", api.MustExist)
		m.coherence.maxWeight = 1
		by := c.mutation()
		done := later(func() error { return c.set(t.Context(), by, file, []byte("x")) })
		synctest.Wait()
		select {
		case err := <-done:
			fails(t, err, api.QuotaExceeded)
		default:
			t.Error("the refusal waits for a client's cache")
		}
	})
}

// A backup for which there is no room beside what the cell holds is refused before all of it is there.
func TestFullCellTakesNoLargerBackup(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.clientOf(t, 1, patient)
		m.coherence.maxWeight = 64 << 10
		restore := func(r raftfsm.Restore) error {
			r.Mutation = c.mutation()
			_, _, err := m.Restore(t.Context(), r)
			return err
		}
		noErr(t, restore(raftfsm.Restore{Begin: &raftfsm.RestoreBegin{Cell: "local", CellID: "c", Level: raftfsm.MaxLevel, Counter: 10, Nodes: 999}}))
		part := func(n int) error {
			nodes := []*namespace.Node{{Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1}}
			if n > 0 {
				nodes = nil
				for i := range 40 {
					nodes = append(nodes, &namespace.Node{Name: api.Name(fmt.Sprintf("/f%d-%d", n, i)), Kind: api.File, Instance: 2, Content: 3, ACLs: 4})
				}
			}
			return restore(raftfsm.Restore{Add: &raftfsm.RestoreAdd{Part: uint64(n + 1), Nodes: nodes}})
		}
		for n := range 3 {
			noErr(t, part(n), "part", n)
		}
		fails(t, part(3), api.QuotaExceeded, "one part too many")
	})
}
