package raftfsm_test

import (
	"bytes"
	_ "embed"
	"errors"
	"io"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// version0 is a snapshot that the last version wrote in which generations counted
// the writes of a node: /file was written 40 times, by the one session, s4, in epoch 2.
//
//go:embed testdata/version0.snapshot
var version0 []byte

// An old snapshot loads, and what is committed of an old master's entries does
// what it did then, on every replica alike. From the first epoch of this version
// on generations come from the cell's counter, and are above all that were counted.
func TestOldStateGoesOn(t *testing.T) {
	state, err := raftfsm.ReadState(bytes.NewReader(version0))
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{t: t, state: state, term: 2, index: state.Applied, next: map[api.SessionID]api.RequestNumber{4: 100}}
	file, _ := c.state.Tree.Get("/file")
	write := func() api.Generation {
		t.Helper()
		r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(4), Node: file.Ref(), Contents: []byte("y")}})
		c.want(r, api.OK)
		return r.Stat.Content
	}
	if file.Content != 41 || write() != 42 {
		t.Errorf("the file was at generation %d; want 41, and one more for an old master's write", file.Content)
	}
	var again bytes.Buffer
	if _, err := c.state.WriteTo(&again); err != nil {
		t.Fatal(err)
	}
	if state, err = raftfsm.ReadState(&again); err != nil || state.Version != 0 {
		t.Fatalf("an old state is of version %d after it was written and read: %v", state.Version, err)
	}
	if c.state.Counter >= 42 {
		t.Fatalf("the counter, %d, is above the generations that were counted: the test shows nothing", c.state.Counter)
	}
	c.elect()
	if g := write(); g <= 42 || uint64(g) != c.state.Counter {
		t.Errorf("a write in the new version has generation %d; want one of the counter, above 42", g)
	}
	if err := c.state.Check(); err != nil {
		t.Error(err)
	}
}

// A running hash tells replicas apart that applied different entries, and only
// those. Version 0 had none, nor had the first snapshots of version 1: replicas that
// went on from snapshots of different entries agree all the same, from the entry on
// that goes on to this version, and in version 0 they say nothing.
func TestOldSnapshotsDoNotDiffer(t *testing.T) {
	for version := range 2 {
		old, err := raftfsm.ReadState(bytes.NewReader(version0))
		if err != nil {
			t.Fatal(err)
		}
		if version > 0 {
			old.Apply(old.Applied+1, 3, raftfsm.Entry{Epoch: 3, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", Version: version}}}})
		}
		epoch := old.Epoch
		entry := func(c raftfsm.Command) raftfsm.Entry {
			return raftfsm.Entry{Epoch: epoch, Commands: []raftfsm.Command{c}}
		}
		session := func(nonce byte) raftfsm.Command {
			return raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte{nonce}, Lease: api.MinLease}}
		}
		entries := []raftfsm.Entry{entry(session(1)), entry(session(2))}
		epoch++
		entries = append(entries, entry(raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", Version: raftfsm.Version}}), entry(session(3)))
		upgrade := old.Applied + 3
		var replicas []*raftfsm.FSM
		for taken := range 3 { // so many of the entries are in the snapshot
			replicas = append(replicas, goesOn(t, old, entries, taken))
		}
		for i, f := range replicas {
			for index := old.Applied + 1; index <= upgrade+1; index++ {
				sum, ok := f.HistoryAt(index)
				want, _ := replicas[0].HistoryAt(index)
				switch {
				case index >= upgrade && (!ok || sum == 0 || sum != want):
					t.Errorf("version %d: replica %d has %x after entry %d (%v); want %x", version, i, sum, index, ok, want)
				case version == 0 && index < upgrade && ok && sum != 0:
					t.Errorf("replica %d has the running hash %x in version 0", i, sum)
				}
			}
		}
	}
}

// goesOn returns a replica that loaded a snapshot of a state after some of the
// entries, and applied the others.
func goesOn(t *testing.T, state raftfsm.State, entries []raftfsm.Entry, taken int) *raftfsm.FSM {
	t.Helper()
	index := state.Applied
	for _, e := range entries[:taken] {
		index++
		state.Apply(index, uint64(e.Epoch), e)
	}
	var snapshot bytes.Buffer
	if _, err := state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	f := raftfsm.NewFSM(func(err error) { t.Error(err) })
	if err := f.Restore(io.NopCloser(&snapshot)); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries[taken:] {
		data, err := raftfsm.EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		index++
		f.Apply(&raft.Log{Index: index, Term: uint64(e.Epoch), Data: data})
	}
	return f
}

// An old master's entry does what it did then: directories among the access control
// lists are refused from version 2 on.
func TestOldEntriesDoWhatTheyDid(t *testing.T) {
	state, err := raftfsm.ReadState(bytes.NewReader(version0))
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{t: t, state: state, term: 2, index: state.Applied, next: map[api.SessionID]api.RequestNumber{4: 100}}
	create := func(name api.Name) raftfsm.Result {
		return c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(4), Name: name, Create: api.MustCreate, Kind: api.Directory}})
	}
	c.want(create("/acl/old"), api.OK)
	c.elect()
	c.want(create("/acl/new"), api.InvalidArgument)
}

// A generation stands for one content of a name, also if the file was deleted and
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

// A replica that does not know the version of an entry stops, and says why.
func TestUnknownVersionIsRefused(t *testing.T) {
	data, err := raftfsm.EncodeEntry(raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{Cell: "local", Version: raftfsm.Version + 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raftfsm.DecodeEntry(data); api.CodeOf(err) != api.Corrupt || !errors.Is(err, raftfsm.ErrNewer) {
		t.Errorf("an entry of a later version: %v", err)
	}
	state := raftfsm.NewState()
	state.Version = raftfsm.Version + 1
	var snapshot bytes.Buffer
	if _, err := state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	if _, err := raftfsm.ReadState(&snapshot); api.CodeOf(err) != api.Corrupt {
		t.Errorf("a snapshot of a later version: %v", err)
	}
}
