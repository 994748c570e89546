package raftfsm_test

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// largeState returns a state with so many files, in directories of 1,000, and a session.
func largeState(tb testing.TB, files int) (*raftfsm.State, api.SessionID) {
	s := raftfsm.NewState()
	s.Edit()
	r := s.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Level: raftfsm.MaxLevel}},
		{CreateSession: &raftfsm.CreateSession{Nonce: []byte("a"), Lease: api.DefaultLease}},
	}})
	for i := range files {
		dir := api.Name(fmt.Sprintf("/dir-%04d", i/1_000))
		if i%1_000 == 0 {
			s.Counter++
			if _, err := s.Tree.Create(dir, namespace.Spec{Kind: api.Directory}, api.Generation(s.Counter)); err != nil {
				tb.Fatal(err)
			}
		}
		s.Counter++
		if _, err := s.Tree.Create(dir+api.Name(fmt.Sprintf("/file-%03d", i%1_000)), namespace.Spec{Kind: api.File}, api.Generation(s.Counter)); err != nil {
			tb.Fatal(err)
		}
	}
	return &s, r[1].Session
}

// writeOne applies an entry that writes a file.
func writeOne(tb testing.TB, s *raftfsm.State, by api.SessionID, n api.RequestNumber, name api.Name) {
	node, ok := s.Tree.Get(name)
	if !ok {
		tb.Fatalf("there is no %s", name)
	}
	m := session.Mutation{Session: by, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}}
	if r := s.Apply(uint64(n)+1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{SetContents: &raftfsm.SetContents{Mutation: m, Node: node.Ref(), Contents: []byte("x")}}}}); r[0].Code() != api.OK {
		tb.Fatal(r[0].Err())
	}
}

// A snapshot of a large state takes as little as one of a small state, and the entries after it
// copy little: some nodes of each map.
func TestSnapshotCopiesNothing(t *testing.T) {
	cost := func(files int) (snapshot, entry float64) {
		s, id := largeState(t, files)
		var kept raftfsm.State
		snapshot = testing.AllocsPerRun(10, func() { kept = s.Snapshot() })
		n := api.RequestNumber(0)
		both := testing.AllocsPerRun(10, func() {
			kept = s.Snapshot()
			n++
			writeOne(t, s, id, n, "/dir-0000/file-007")
		})
		if node, ok := kept.Tree.Get("/dir-0000/file-007"); !ok || string(node.Contents) != "x" {
			t.Errorf("the last snapshot has %+v", node)
		}
		return snapshot, both - snapshot
	}
	small, smallEntry := cost(1_000)
	large, largeEntry := cost(100_000)
	t.Logf("allocations: a snapshot %v, and an entry after it %v; of a state 100 times as large %v and %v", small, smallEntry, large, largeEntry)
	if large != small || large > 20 || largeEntry > smallEntry+20 {
		t.Errorf("a snapshot takes %v allocations, and of a state 100 times as large %v; an entry after it %v and %v", small, large, smallEntry, largeEntry)
	}
}
