package raftfsm_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
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
			c.want(c.apply(raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: c.mutation(id), Node: file, ACL: api.ACL{Read: "everyone"}, IfACLs: &node.ACLs}}), api.OK)
			node, _ = c.state.Tree.Get("/file")
		}
		c.want(c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(id), Node: file, Handle: h}}), api.OK)
	}
}

// A replica that does not know the level of its cell stops, and says why. The level at
// which a newer master would bootstrap the cell does not matter to a cell that there is.
func TestUnknownLevelIsRefused(t *testing.T) {
	newer := func(term uint64) []byte {
		data, err := raftfsm.Entry{Epoch: api.Epoch(term), Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", Level: raftfsm.MaxLevel + 1}}}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	empty := raftfsm.NewState()
	if _, err := empty.ApplyData(1, 1, newer(1), raftfsm.MaxLevel); api.CodeOf(err) != api.Corrupt || !errors.Is(err, raftfsm.ErrNewer) || empty.Applied != 0 {
		t.Errorf("a cell that begins at a later level: %v, and entry %d was applied", err, empty.Applied)
	}
	c := newCell(t)
	if err := c.state.Check(); err != nil || c.state.Level != raftfsm.MaxLevel {
		t.Errorf("a new cell is at level %d: %v", c.state.Level, err)
	}
	var snapshot bytes.Buffer
	if _, err := c.state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	restored, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restored.ApplyData(c.index+1, c.term+1, newer(c.term+1), raftfsm.MaxLevel); err != nil || restored.Level != raftfsm.MaxLevel {
		t.Errorf("a newer master: %v, and the cell is at level %d", err, restored.Level)
	}
	state := raftfsm.NewState()
	state.Level = raftfsm.MaxLevel + 1
	if _, err := state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	if _, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel); api.CodeOf(err) != api.Corrupt || !errors.Is(err, raftfsm.ErrNewer) {
		t.Errorf("a snapshot of a later level: %v", err)
	}
}

// Who may change the ACL of the root raises the level, upwards only, to one that all
// replicas know; it survives a snapshot. A replica that does not know it stops.
func TestRaiseLevel(t *testing.T) {
	const next = raftfsm.MaxLevel + 1
	c := newCell(t)
	a := c.session("a")
	raise := func(by api.SessionID, to int) raftfsm.Result {
		return c.apply(raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(by), To: to}})
	}
	c.want(raise(a, raftfsm.MaxLevel), api.InvalidArgument)
	c.want(raise(a, 0), api.InvalidArgument)
	c.want(raise(a, next), api.OK)
	c.want(raise(a, next), api.InvalidArgument)
	c.elect()
	if c.state.Level != next {
		t.Errorf("level %d after it was raised and a master was elected; want %d", c.state.Level, next)
	}
	closed := c.session("b")
	root, _ := c.state.Tree.Get("")
	c.file(a, "/acl/nobody")
	c.want(c.apply(raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: c.mutation(a), Node: root.Ref(), ACL: api.ACL{Change: "nobody"}}}), api.OK)
	c.want(raise(closed, next+1), api.PermissionDenied)

	var snapshot bytes.Buffer
	if _, err := c.state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	whole := snapshot.Bytes()
	if again, err := raftfsm.ReadState(bytes.NewReader(whole), next); err != nil || again.Level != next {
		t.Errorf("a snapshot of level %d is read as one of %d: %v", next, again.Level, err)
	}
	data, err := raftfsm.Entry{Epoch: api.Epoch(c.term), Commands: []raftfsm.Command{{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(a), To: next}}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	old := c.state
	old.Level = raftfsm.MaxLevel
	if _, err := old.ApplyData(c.index+1, c.term, data, raftfsm.MaxLevel); !errors.Is(err, raftfsm.ErrNewer) || old.Level != raftfsm.MaxLevel {
		t.Errorf("an older replica applies it: %v, and is at level %d", err, old.Level)
	}
	if _, err := raftfsm.ReadState(bytes.NewReader(whole), raftfsm.MaxLevel); !errors.Is(err, raftfsm.ErrNewer) {
		t.Errorf("an older replica loads its snapshot: %v", err)
	}
}
