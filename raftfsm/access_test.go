package raftfsm_test

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// After a master has restored access, everybody may write the lists again, however they were damaged. Other nodes keep
// their names, and an ordinary NewEpoch changes nothing.
func TestRestoreAccess(t *testing.T) {
	c := newCell(t)
	tree := &c.state.Tree
	next := func() api.Generation {
		c.state.Counter++
		return api.Generation(c.state.Counter)
	}
	must(tree.Create("/acl/ops", namespace.Spec{Kind: api.File, Contents: []byte("alice\n")}, next()))(t)
	must(tree.Create("/data", namespace.Spec{Kind: api.File}, next()))(t)
	closed := api.ACL{Read: "ops", Write: "ops", Change: "ops"}
	for _, name := range []api.Name{"", "/acl", "/acl/ops", "/data"} {
		n, _ := tree.Get(name)
		must(tree.SetACL(n.Ref(), closed, nil, next))(t)
	}
	everyone, _ := tree.Get("/acl/everyone")
	must(tree.SetContents(everyone.Ref(), namespace.Write{}, next))(t)
	may := func(name api.Name) bool {
		n, _ := c.state.Tree.Get(name)
		return c.state.Tree.Permit(n, "anonymous", namespace.ToRead|namespace.ToWrite|namespace.ToChange) == nil
	}
	begin := func(restore bool) {
		t.Helper()
		c.term++
		c.index++
		results := c.state.Apply(c.index, c.term, raftfsm.Entry{Epoch: api.Epoch(c.term), Commands: []raftfsm.Command{{
			NewEpoch: &raftfsm.NewEpoch{Cell: c.state.Cell, CellID: c.state.CellID, Secret: make([]byte, 32), Level: raftfsm.MaxLevel, RestoreAccess: restore},
		}}})
		noErr(t, results[0].Answer.Err())
	}
	begin(false)
	for _, name := range []api.Name{"", "/acl", "/acl/ops", "/data"} {
		stopIf(t, may(name), "%q is open before access is restored: the test proves nothing", name)
	}
	begin(true)
	for name, want := range map[api.Name]bool{"": true, "/acl": true, "/acl/ops": true, "/acl/everyone": true, "/data": false} {
		failIf(t, may(name) != want, "%q open to everybody: %t, want %t", name, !want, want)
	}
	if n, _ := c.state.Tree.Get("/acl/ops"); string(n.Contents) != "alice\n" {
		t.Errorf("the list ops is %q", n.Contents)
	}
	report(t, c.state.Check())
}

// A directory cannot take the name of a list, nor can a file take the name of the directory of lists: restoring access
// could not write the list then. A list cannot be ephemeral, because a restored list would be removed with a session.
func TestListsKeepTheirPlace(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	remove := func(name api.Name) {
		t.Helper()
		n, _ := c.state.Tree.Get(name)
		c.want(c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(id), Node: n.Ref()}}), api.OK)
	}
	create := func(name api.Name, kind api.Kind, ephemeral bool) raftfsm.Result {
		return c.apply(raftfsm.Command{Open: &raftfsm.Open{
			Mutation: c.mutation(id), Name: name, Create: api.MayCreate, Kind: kind, Ephemeral: ephemeral, ACL: api.ACL{},
		}})
	}
	remove("/acl/everyone")
	c.want(create("/acl/everyone", api.Directory, false), api.InvalidArgument)
	c.want(create("/acl/other", api.Directory, false), api.InvalidArgument)
	c.want(create("/acl/everyone", api.File, true), api.InvalidArgument)
	c.want(create("/acl/other", 0, true), api.InvalidArgument)
	n, _ := c.state.Tree.Get("/acl")
	noErr(t, c.state.Tree.Delete(n.Ref(), namespace.Owner{Session: id}))
	for _, one := range []struct {
		kind      api.Kind
		ephemeral bool
	}{{api.File, false}, {0, false}, {api.Directory, true}} {
		c.want(create("/acl", one.kind, one.ephemeral), api.InvalidArgument)
	}
}

// Below level 3 a list operators means nothing; from then on it says who is one, and without it the ACL of the root does.
func TestOperatorsFromLevelThree(t *testing.T) {
	for _, level := range []int{2, 3} {
		c := newCell(t)
		c.state.Level = level
		alice, bob := c.session("alice"), c.session("bob")
		may := func(id api.SessionID) bool {
			return c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(id), Principal: "x", Quota: api.Quota{Nodes: 1}}}).Code() == api.OK
		}
		if !may(alice) || !may(bob) {
			t.Error("without the list:", may(alice), may(bob))
		}
		c.file(alice, "/acl/operators")
		ref, _ := c.file(alice, "/acl/operators")
		c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(alice), Node: ref, Contents: []byte("alice\n")}})
		if !may(alice) || may(bob) != (level < 3) {
			t.Error("with the list, at level", level, may(alice), may(bob))
		}
	}
}

// A cell without a list of operators has everybody change its lists. Making that list, in whatever way, closes them in the same entry: else
// everybody could write it. Names that somebody chose stay, and below level 3 nothing happens.
func TestMakingOperatorsClosesTheLists(t *testing.T) {
	put := func(contents string) raftfsm.Open {
		return raftfsm.Open{Name: "/acl/operators", Create: api.MayCreate, Kind: api.File, Contents: []byte(contents)}
	}
	ways := map[string]func(c *cell, by api.SessionID){
		"created with its contents": func(c *cell, by api.SessionID) {
			o := put("@ops\n")
			o.Mutation = c.mutation(by)
			if r := c.apply(raftfsm.Command{Open: &o}); c.state.Level >= 3 && r.Stat.ACL.Write != "operators" {
				t.Errorf("its author is told the names %+v", r.Stat.ACL)
			}
		},
		"created empty, and written": func(c *cell, by api.SessionID) {
			ref, _ := c.file(by, "/acl/operators")
			if dir, _ := c.state.Tree.Get("/acl"); dir.ACL.Write != "everyone" {
				t.Error("an empty list has closed the lists: nobody may write them any more")
			}
			r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(by), Node: ref, Contents: []byte("@ops\n")}})
			if c.state.Level >= 3 && (len(r.Changes) < 5 || r.Stat.ACL.Change != "operators") {
				t.Errorf("changes %v, and its author is told the names %+v", r.Changes, r.Stat.ACL)
			}
		},
		"in a transaction": func(c *cell, by api.SessionID) {
			if c.state.Level < 3 {
				return
			}
			c.want(c.apply(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(by), Operations: []raftfsm.Operation{
				{Name: "/acl/operators", Create: api.MayCreate, Contents: []byte("@ops\n")},
			}}}), api.OK)
		},
	}
	for how, list := range ways {
		for _, level := range []int{2, 3} {
			c := newCell(t)
			c.state.Level = level
			alice := c.session("alice")
			c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(alice), Name: "/acl/ops", Create: api.MayCreate, Kind: api.File, Contents: []byte("alice\n")}}), api.OK)
			c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(alice), Name: "/acl/chosen", Create: api.MayCreate, Kind: api.File, ACL: api.ACL{Write: "ops"}}}), api.OK)
			list(c, alice)
			may := func(principal string, name api.Name, right namespace.Rights) bool {
				n, there := c.state.Tree.Get(name)
				return there && c.state.Tree.Permit(n, principal, right) == nil
			}
			for _, name := range []api.Name{"/acl", "/acl/everyone", "/acl/ops", "/acl/operators"} {
				if level == 3 && (may("bob", name, namespace.ToWrite) || may("bob", name, namespace.ToChange) || !may("bob", name, namespace.ToRead) || !may("alice", name, namespace.ToWrite|namespace.ToChange)) {
					t.Errorf("%s, at level %d: %q is open to others, or closed to operators", how, level, name)
				}
				if level == 2 && name != "/acl/operators" && !may("bob", name, namespace.ToWrite) {
					t.Errorf("%s, at level %d: %q is closed", how, level, name)
				}
			}
			if may("bob", "", namespace.ToChange) != (level < 3) || !may("bob", "", namespace.ToWrite) {
				t.Errorf("%s, at level %d: the root is open to others, or nobody else may make directories", how, level)
			}
			if chosen, _ := c.state.Tree.Get("/acl/chosen"); chosen.ACL.Write != "ops" {
				t.Errorf("%s, at level %d: a name that was chosen is %q now", how, level, chosen.ACL.Write)
			}
		}
	}
}
