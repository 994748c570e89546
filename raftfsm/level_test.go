package raftfsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// No two contents of one name have the same generation, even if the file was
// deleted and created again: a condition on the generation read before is not
// met then.
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

// A replica that does not know the level of its cell stops, and says why. The level at which a
// newer master would bootstrap a cell has no effect on an existing cell.
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

// The list at MaxLevel says of each level what it brought: so nobody raises the level for two
// things that are released apart, and an operator can be told what an upgrade is for.
func TestLevelsAreListed(t *testing.T) {
	source, err := os.ReadFile("level.go")
	if err != nil {
		t.Fatal(err)
	}
	for level := 1; level <= raftfsm.MaxLevel; level++ {
		if line := regexp.MustCompile(fmt.Sprintf(`(?m)^//\t%d  \w`, level)); !line.Match(source) {
			t.Errorf("the list at MaxLevel, in level.go, has no line for level %d: say what it brings", level)
		}
	}
}

// A client that may change the ACL of the root can raise the level, never lower it. The level
// survives a snapshot, which a replica that does not know it refuses.
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
	if _, err := raftfsm.ReadState(bytes.NewReader(whole), raftfsm.MaxLevel); !errors.Is(err, raftfsm.ErrNewer) {
		t.Errorf("an older replica loads its snapshot: %v", err)
	}
}

// An older replica stops at the entry that raises the level above the highest that it
// knows. It does not stop at one that is refused.
func TestOlderReplicaStopsAtTheLevel(t *testing.T) {
	c := newCell(t)
	a := c.session("a")
	raise := raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(a), To: raftfsm.MaxLevel + 1}}
	for _, one := range []struct {
		epoch   uint64
		refused bool
	}{{c.term - 1, true}, {c.term, false}} {
		data, err := raftfsm.Entry{Epoch: api.Epoch(one.epoch), Commands: []raftfsm.Command{raise}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		old := c.state
		results, err := old.ApplyData(c.index+1, c.term, data, raftfsm.MaxLevel)
		switch {
		case one.refused && (err != nil || results[0].Code() != api.StaleEpoch || old.Applied != c.index+1):
			t.Errorf("refused: %v, %v", results, err)
		case !one.refused && (!errors.Is(err, raftfsm.ErrNewer) || old.Applied != c.index || old.Level != raftfsm.MaxLevel):
			t.Errorf("raised: %v; entry %d was applied, and the level is %d", err, old.Applied, old.Level)
		}
	}
}

// From level 2 on, contents have the time of their last write; below it, the state is the one that
// v0.1.0 computes. Only a write changes the time.
func TestModifiedFromLevelTwo(t *testing.T) {
	c := &cell{t: t, state: raftfsm.NewState(), term: 1, next: map[api.SessionID]api.RequestNumber{}}
	c.want(c.apply(raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: 1}}), api.OK)
	a := c.session("a")
	modified := func(name api.Name) int64 {
		t.Helper()
		node, ok := c.state.Tree.Get(name)
		if !ok {
			t.Fatalf("%v does not exist", name)
		}
		return node.ModifiedUnix
	}
	write := func(node namespace.Ref) int64 {
		t.Helper()
		r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(a), Node: node, Contents: []byte("x")}})
		c.want(r, api.OK)
		return r.Stat.ModifiedUnix
	}
	old, _ := c.file(a, "/old")
	if told := write(old); told != 0 || modified("/old") != 0 {
		t.Errorf("at level 1 the contents have the time %d, and the answer says %d", modified("/old"), told)
	}
	c.want(c.apply(raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(a), To: 2}}), api.OK)
	if modified("/old") != 0 {
		t.Error("raising the level set a time")
	}
	created, _ := c.file(a, "/new")
	if now := int64(c.index); modified("/new") != now {
		t.Errorf("the new file has the time %d, want %d", modified("/new"), now)
	}
	for _, node := range []namespace.Ref{old, created} {
		told := write(node)
		if now := int64(c.index); told != now || modified(node.Name) != now {
			t.Errorf("%v has the time %d, and the answer says %d; want %d", node.Name, modified(node.Name), told, now)
		}
		c.want(c.apply(raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: c.mutation(a), Node: node, ACL: api.ACL{Read: "everyone"}}}), api.OK)
		if modified(node.Name) != told {
			t.Errorf("a change of the ACL names of %v changed the time of its contents", node.Name)
		}
	}
}

// What was granted below the level of proofs is known by its generation, also after a snapshot; a cell that begins with proofs has no such grant.
func TestProofsFromLevelThree(t *testing.T) {
	if c := newCell(t); c.state.Unproved != 0 {
		t.Errorf("a new cell has granted up to %d without proofs", c.state.Unproved)
	}
	c := &cell{t: t, state: raftfsm.NewState(), term: 1, next: map[api.SessionID]api.RequestNumber{}}
	c.want(c.apply(raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: 1}}), api.OK)
	a := c.session("a")
	raise := func(to int) {
		c.want(c.apply(raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(a), To: to}}), api.OK)
	}
	raise(2)
	node, _ := c.file(a, "/lock")
	if c.state.Unproved != 0 {
		t.Error("there are no proofs yet")
	}
	raise(3)
	if was := c.state.Unproved; was < node.Instance || uint64(was) != c.state.Counter {
		t.Errorf("%d, and the counter is %d", was, c.state.Counter)
	}
	was := c.state.Unproved
	c.file(a, "/other")
	raise(4)
	var snapshot bytes.Buffer
	if _, err := c.state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	read, err := raftfsm.ReadState(&snapshot, 4)
	if err != nil || read.Unproved != was {
		t.Errorf("after a snapshot it is %d, and was %d: %v", read.Unproved, was, err)
	}
}
