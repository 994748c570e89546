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
		if _, err := c.state.WriteTo(&snapshot); err != nil {
			t.Fatal(err)
		}
		var err error
		if c.state, err = raftfsm.ReadState(&snapshot, raftfsm.MaxLevel); err != nil {
			t.Fatal(err)
		}
		if again := c.apply(command); !reflect.DeepEqual(again.Answer, first.Answer) || len(again.Changes) > 0 {
			t.Errorf("answered %+v, and from a snapshot %+v with changes %v", first.Answer, again.Answer, again.Changes)
		}
	}
}
