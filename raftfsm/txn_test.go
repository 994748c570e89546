package raftfsm_test

import (
	"reflect"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// Each step of a transaction takes the rights that count when the command is applied: to read or write what a
// condition is about, or the directory where it would be; and to write what is changed.
func TestTxnTakesRights(t *testing.T) {
	c := newCell(t)
	owner, stranger := c.session("owner"), c.session("stranger")
	list, _ := c.file(owner, "/acl/owner")
	c.want(c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(owner), Node: list, Contents: []byte("owner\n")}}), api.OK)
	create := func(name api.Name, kind api.Kind, acl api.ACL) {
		t.Helper()
		c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(owner), Name: name, Create: api.MustCreate, Kind: kind, ACL: acl}}), api.OK)
	}
	create("/dark", api.Directory, api.ACL{Read: "owner", Write: "owner", Change: "everyone"})
	create("/dark/none", api.File, api.ACL{})
	create("/dark/read", api.File, api.ACL{Read: "everyone"})
	create("/dark/write", api.File, api.ACL{Write: "everyone"})
	absent := api.Generation(0)
	looks := func(name api.Name) []raftfsm.Condition {
		return []raftfsm.Condition{{Name: name, Content: &absent}, {Name: name, Exists: true}, {Name: name, Instance: 1}}
	}
	try := func(by api.SessionID, c0 *raftfsm.Txn) api.Code {
		c0.Mutation = c.mutation(by)
		return c.apply(raftfsm.Command{Txn: c0}).Code()
	}
	for name, want := range map[api.Name]api.Code{
		"/dark/none": api.PermissionDenied, "/dark/absent": api.PermissionDenied, "/dark/none/x": api.PermissionDenied,
		"/dark/read": api.GenerationMismatch, "/dark/write": api.GenerationMismatch, "/absent": api.GenerationMismatch, "/absent/x": api.GenerationMismatch,
	} {
		for _, condition := range looks(name) {
			got := try(stranger, &raftfsm.Txn{Conditions: []raftfsm.Condition{condition}})
			node, there := c.state.Tree.Get(name)
			holds := want != api.PermissionDenied && (condition.Exists && there || condition.Content != nil && !there || there && condition.Instance == node.Instance)
			if got != want && (got != api.OK || !holds) {
				t.Errorf("a stranger's condition %+v: %v, want %v", condition, got, want)
			}
			if got := try(owner, &raftfsm.Txn{Conditions: []raftfsm.Condition{condition}}); got == api.PermissionDenied {
				t.Errorf("the owner's condition %+v: %v", condition, got)
			}
		}
	}
	for _, o := range []raftfsm.Operation{
		{Name: "/dark/none", Create: api.MayCreate}, {Name: "/dark/read", Create: api.MayCreate}, {Name: "/dark/new", Create: api.MayCreate},
		{Name: "/dark/new", Create: api.MustCreate}, {Name: "/dark/none", Delete: true}, {Name: "/dark/read", Delete: true},
	} {
		if got := try(stranger, &raftfsm.Txn{Operations: []raftfsm.Operation{{Name: "/dark/write", Contents: []byte("x")}, o}}); got != api.PermissionDenied {
			t.Errorf("a stranger's operation %+v: %v", o, got)
		}
	}
	if n, _ := c.state.Tree.Get("/dark/write"); len(n.Contents) > 0 {
		t.Errorf("what a refused transaction has written stays: %q", n.Contents)
	}
	if got := try(stranger, &raftfsm.Txn{Operations: []raftfsm.Operation{{Name: "/dark/write", Delete: true}}}); got != api.OK {
		t.Errorf("a stranger deletes what it may write: %v", got)
	}
}

// A transaction does not open what it writes: an ephemeral file dies with those that have it open. One that is being removed is
// neither there nor absent.
func TestTxnAndEphemeralFiles(t *testing.T) {
	c := newCell(t)
	owner, writer := c.session("a"), c.session("b")
	r := c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(owner), Name: "/e", Create: api.MustCreate, Kind: api.File, Ephemeral: true}})
	c.want(r, api.OK)
	txn := func(conditions []raftfsm.Condition, operations ...raftfsm.Operation) raftfsm.Result {
		return c.apply(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(writer), Conditions: conditions, Operations: operations}})
	}
	c.want(txn(nil, raftfsm.Operation{Name: "/e", Create: api.MayCreate, Contents: []byte("x")}), api.OK)
	node, _ := c.state.Tree.Get("/e")
	if len(node.Openers) != 1 || node.Openers[0].Session != owner {
		t.Errorf("open in %v", node.Openers)
	}
	closing := raftfsm.Close{Mutation: c.mutation(owner), Node: node.Ref(), Handle: node.Openers[0].Handle}
	c.want(c.apply(raftfsm.Command{Close: &closing}), api.OK)
	absent := api.Generation(0)
	for _, one := range []raftfsm.Condition{{Content: &absent}, {Content: &node.Content}, {Instance: node.Instance}, {Exists: true}} {
		one.Name = "/e"
		c.want(txn([]raftfsm.Condition{one}), api.GenerationMismatch)
	}
	c.want(txn(nil, raftfsm.Operation{Name: "/e", Create: api.MayCreate}), api.Exists)
	c.want(txn(nil, raftfsm.Operation{Name: "/e", Delete: true}), api.NotFound)
	c.want(c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: []namespace.Ref{node.Ref()}}}), api.OK)
	c.want(txn([]raftfsm.Condition{{Name: "/e", Content: &absent}}, raftfsm.Operation{Name: "/e", Create: api.MustCreate}), api.OK)
}

// A retry of a transaction gets its answer and does nothing, after what others did.
func TestTxnIsAnsweredAgain(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	m := c.mutation(a)
	txn := raftfsm.Command{Txn: &raftfsm.Txn{Mutation: m, Operations: []raftfsm.Operation{
		{Name: "/x", Create: api.MustCreate, Contents: []byte("1")}, {Name: "/y", Create: api.MayCreate, Contents: []byte("22")},
	}}}
	first := c.apply(txn)
	c.want(first, api.OK)
	if stats := *first.Written; len(stats) != 2 || stats[1].Size != 2 || stats[1].Name != "" || len(first.Changes) != 2 {
		t.Errorf("answered %+v, changes %+v", first.Answer, first.Changes)
	}
	c.want(c.apply(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(b), Operations: []raftfsm.Operation{{Name: "/x", Delete: true}}}}), api.OK)
	again := c.apply(txn)
	if !reflect.DeepEqual(again.Answer, first.Answer) || len(again.Changes) > 0 {
		t.Errorf("answered again: %+v, changes %+v", again.Answer, again.Changes)
	}
	if _, there := c.state.Tree.Get("/x"); there {
		t.Error("the retry has done it again")
	}
}
