package raftfsm_test

import (
	"bytes"
	"fmt"
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
	failIf(t, len(node.Openers) != 1 || node.Openers[0].Session != owner, "open in %v", node.Openers)
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

// txn applies a transaction.
func (c *cell) txn(by api.SessionID, conditions []raftfsm.Condition, operations ...raftfsm.Operation) raftfsm.Result {
	c.t.Helper()
	return c.apply(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(by), Conditions: conditions, Operations: operations}})
}

// A transaction of which one step cannot be done, whichever it is, leaves all as it was, and names the step: files, what
// directories and quotas count, and what is remembered of locks.
func TestTxnIsAllOrNothing(t *testing.T) {
	c := newCell(t)
	by, other := c.session("by"), c.session("other")
	dir := c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(by), Name: "/d", Create: api.MustCreate, Kind: api.Directory}})
	used, mine := c.file(by, "/d/used")
	c.use(used, by, mine)
	held, theirs := c.file(other, "/held")
	token := c.acquire(held, c.claim(other, theirs))[0].Answer.Generation
	c.want(c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{
		Mutation: c.mutation(by), Directory: &namespace.Ref{Name: "/d", Instance: dir.Stat.Instance}, Quota: api.Quota{Nodes: 10, Bytes: 100},
	}}), api.OK)
	was := func() string {
		all := ""
		for n := range c.state.Tree.All() {
			all += fmt.Sprintf("%s %d %d %q %d %+v\n", n.Name, n.Instance, n.Content, n.Contents, n.Children, n.Quota)
		}
		return all + fmt.Sprint(len(c.ended("/d/used")), c.state.Tree.Usage("by"), c.state.Tree.Counts())
	}
	before := was()
	there, absent := c.state.Counter, api.Generation(0)
	stale := &raftfsm.Precondition{Lock: "/held", Mode: api.Exclusive, Generation: token - 1}
	done := []raftfsm.Operation{{Name: "/d/used", Delete: true}, {Name: "/d/new", Create: api.MustCreate, Contents: []byte("new")}}
	for what, row := range map[string]struct {
		conditions []raftfsm.Condition
		last       raftfsm.Operation
		want       api.Code
		step       int
	}{
		"a generation that is not the file's": {[]raftfsm.Condition{{Name: "/d", Exists: true}, {Name: "/d/used", Content: new(api.Generation(there))}}, done[1], api.GenerationMismatch, 2},
		"an instance of another":              {[]raftfsm.Condition{{Name: "/d/used", Instance: used.Instance + 1}}, done[1], api.GenerationMismatch, 1},
		"a sequencer of another holder":       {[]raftfsm.Condition{{Sequencer: stale}}, done[1], api.BadSequencer, 1},
		"a lock that is held":                 {nil, raftfsm.Operation{Name: "/held", Delete: true}, api.LockHeld, 3},
		"the author's own lock":               {nil, raftfsm.Operation{Name: "/held", Delete: true}, api.LockHeld, 3},
		"a directory with a new child":        {[]raftfsm.Condition{{Name: "/d", Exists: true}}, raftfsm.Operation{Name: "/d", Delete: true}, api.NotEmpty, 4},
		"a child of a new file":               {nil, raftfsm.Operation{Name: "/d/new/x", Create: api.MayCreate}, api.NotDirectory, 3},
		"one that was deleted before":         {nil, raftfsm.Operation{Name: "/d/used", Delete: true}, api.NotFound, 3},
		"one that was created before":         {nil, raftfsm.Operation{Name: "/d/new", Create: api.MustCreate}, api.Exists, 3},
		"more than there is room for":         {nil, raftfsm.Operation{Name: "/d/large", Create: api.MayCreate, Contents: make([]byte, 98)}, api.QuotaExceeded, 3},
		"a condition on what it has done":     {[]raftfsm.Condition{{Name: "/d/used", Content: &absent}}, done[1], api.GenerationMismatch, 1},
	} {
		by := by
		if what == "the author's own lock" {
			by = other
		}
		r := c.txn(by, row.conditions, done[0], done[1], row.last)
		if len(row.conditions) > 0 && row.want != api.NotEmpty {
			r = c.txn(by, row.conditions, done...)
		}
		if r.Code() != row.want || r.Refusal.Step != row.step || len(r.Changes) > 0 || r.Written != nil {
			t.Errorf("%s: %+v at step %d, with changes %v; want %v at %d", what, r.Code(), r.Refusal.Step, r.Changes, row.want, row.step)
		}
		if is := was(); is != before {
			t.Fatalf("%s: there was\n%s\nand is\n%s", what, before, is)
		}
	}
	c.want(c.txn(by, nil, done...), api.OK)
}

// A replica that starts from a snapshot answers the retry of a transaction as the others do, be it done or refused.
func TestTxnIsAnsweredFromASnapshot(t *testing.T) {
	c := newCell(t)
	by := c.session("by")
	operations := []raftfsm.Operation{{Name: "/a", Create: api.MayCreate, Contents: []byte("x")}, {Name: "/b", Create: api.MustCreate}}
	for _, want := range []api.Code{api.OK, api.Exists} {
		command := raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(by), Operations: operations}}
		first := c.apply(command)
		c.want(first, want)
		var snapshot bytes.Buffer
		must(c.state.WriteTo(&snapshot))(t)
		var err error
		if c.state, err = raftfsm.ReadState(&snapshot, raftfsm.MaxLevel); err != nil {
			t.Fatal(err)
		}
		if again := c.apply(command); !reflect.DeepEqual(again.Answer, first.Answer) || len(again.Changes) > 0 {
			t.Errorf("answered %+v, and from a snapshot %+v with changes %v", first.Answer, again.Answer, again.Changes)
		}
	}
}
