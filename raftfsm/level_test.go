package raftfsm_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// A generation is that of one content of a name, also if the file was deleted and
// created again meanwhile: a condition on what was read before is not met.
func TestGenerationOutlivesTheNode(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	seen, names := map[api.Generation]bool{}, map[api.Generation]bool{}
	for range 3 {
		file, h := c.file(id, "/file")
		node, _ := c.state.Tree.Get("/file")
		for range 3 {
			if seen[node.Content] || names[node.ACLs] {
				t.Errorf("generation %d of the contents or %d of the ACL names was there before", node.Content, node.ACLs)
			}
			seen[node.Content], names[node.ACLs] = true, true
			for old := range seen {
				if old != node.Content {
					r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(id), Node: file, Contents: []byte("x"), IfContent: &old}})
					c.want(r, api.GenerationMismatch)
				}
			}
			c.want(c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(id), Node: file, Contents: []byte("x"), IfContent: &node.Content}}), api.OK)
			c.want(c.apply(raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: c.mutation(id), Node: file, ACL: api.ACL{Read: raftfsm.RootACL}, IfACLs: &node.ACLs}}), api.OK)
			node, _ = c.state.Tree.Get("/file")
		}
		c.want(c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(id), Node: file, Handle: h}}), api.OK)
	}
}

// A replica that does not know the level of its cell stops, and says why. The level at
// which a newer master would bootstrap the cell does not matter to a cell that there is.
func TestUnknownLevelIsRefused(t *testing.T) {
	newer := func(term uint64) *raft.Log {
		data, err := raftfsm.EncodeEntry(raftfsm.Entry{Epoch: api.Epoch(term), Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", Level: raftfsm.MaxLevel + 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Index: term, Term: term, Data: data}
	}
	var fatal error
	f := raftfsm.NewFSM(func(err error) { fatal = err })
	if err, _ := f.Apply(newer(1)).(error); api.CodeOf(err) != api.Corrupt || !errors.Is(err, raftfsm.ErrNewer) || !errors.Is(fatal, raftfsm.ErrNewer) {
		t.Errorf("a cell that begins at a later level: %v, %v", err, fatal)
	}
	c := newCell(t)
	if err := c.state.Check(); err != nil || c.state.Level != raftfsm.MaxLevel {
		t.Errorf("a new cell is at level %d: %v", c.state.Level, err)
	}
	var snapshot bytes.Buffer
	if _, err := c.state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	f = raftfsm.NewFSM(func(err error) { t.Error(err) })
	if err := f.Restore(io.NopCloser(&snapshot)); err != nil {
		t.Fatal(err)
	}
	if err, _ := f.Apply(newer(c.term + 1)).(error); err != nil || f.State().Level != raftfsm.MaxLevel {
		t.Errorf("a newer master: %v, and the cell is at level %d", err, f.State().Level)
	}
	state := raftfsm.NewState()
	state.Level = raftfsm.MaxLevel + 1
	if _, err := state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	if _, err := raftfsm.ReadState(&snapshot); api.CodeOf(err) != api.Corrupt || !errors.Is(err, raftfsm.ErrNewer) {
		t.Errorf("a snapshot of a later level: %v", err)
	}
}
