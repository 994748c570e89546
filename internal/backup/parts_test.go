package backup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// Every part of a backup fits into a command of the log, whatever nodes a cell has: lists, principals, paths and contents of any
// legal length. Otherwise the cell could not be restored. Nothing is left out of the parts.
func TestPartsFitIntoACommand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(limit int, what string) string {
			return strings.Repeat("x", rapid.OneOf(rapid.SampledFrom([]int{1, limit}), rapid.IntRange(1, limit)).Draw(t, what))
		}
		spec := namespace.Spec{
			Kind:         api.File,
			ACL:          api.ACL{Read: text(api.MaxComponent, "read"), Write: text(api.MaxComponent, "write"), Change: text(api.MaxComponent, "change")},
			Creator:      text(api.MaxPrincipal, "creator"),
			ModifiedUnix: 1 << 40,
		}
		files := 1500
		if rapid.Bool().Draw(t, "large files") {
			spec.Contents, files = []byte(text(api.MaxContents, "contents")), 4
		}
		width := rapid.IntRange(5, api.MaxComponent).Draw(t, "name")
		state := raftfsm.NewState()
		state.Tree.Edit()
		dir := api.Name("/" + text(api.MaxComponent, "directory"))
		_, err := state.Tree.Create(dir, namespace.Spec{Kind: api.Directory}, api.MaxGeneration)
		for i := range files {
			_, one := state.Tree.Create(dir+api.Name(fmt.Sprintf("/%0*d", width, i)), spec, api.MaxGeneration)
			err = errors.Join(err, one)
		}
		state.Tree.Settle()
		if err != nil {
			t.Fatal(err)
		}
		if nodes, _ := restored(t, state); nodes != state.Tree.Counts().Nodes {
			t.Fatalf("the parts have %d nodes, and the cell has %d", nodes, state.Tree.Counts().Nodes)
		}
	})
}

// The same of quotas.
func TestQuotasFitIntoACommand(t *testing.T) {
	const most = 1500
	state := raftfsm.NewState()
	do := func(index uint64, c raftfsm.Command) raftfsm.Result {
		return state.Apply(index, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{c}})[0]
	}
	do(1, raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: api.CellID(strings.Repeat("ab", 16)), Secret: []byte("s"), Level: raftfsm.MaxLevel}})
	id := do(2, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte("n"), Principal: "operator", Lease: api.DefaultLease}}).Session
	for i := range most {
		n := api.RequestNumber(i + 1)
		m := session.Mutation{Session: id, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: uint64(n)}
		q := api.Quota{Nodes: 1 << 40, Bytes: 1 << 40, Sessions: 1 << 40, Handles: 1 << 40, Waiters: 1 << 40}
		if r := do(uint64(i+3), raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: m, Principal: fmt.Sprintf("%0*d", api.MaxPrincipal, i), Quota: q}}); r.Refusal != nil {
			t.Fatal(r.Refusal.Message())
		}
	}
	if _, quotas := restored(t, state); quotas != most {
		t.Errorf("the parts have %d quotas, and the cell has %d", quotas, most)
	}
}

// restored returns how many nodes and quotas the parts of a state have. It fails the test if one is larger than a command may be.
func restored(t interface{ Fatalf(string, ...any) }, state raftfsm.State) (nodes, quotas int) {
	largest := session.Mutation{Session: 1<<64 - 1, Number: 1<<64 - 1, HighestIssued: 1<<64 - 1, Hash: 1<<64 - 1}
	for i := range uint64(api.MaxOutstanding) {
		largest.Outstanding = append(largest.Outstanding, api.RequestNumber(1<<64-1-i))
	}
	parts, announced := Parts(state)
	for part, err := range parts {
		if err != nil {
			t.Fatalf("%v", err)
		}
		add, err := raftfsm.DecodeRestoreAdd(part)
		if err != nil {
			t.Fatalf("%v", err)
		}
		nodes, quotas = nodes+len(add.Nodes), quotas+len(add.Quotas)
		command, err := raftfsm.Command{Restore: &raftfsm.Restore{Mutation: largest, Add: add}}.Encode(raftfsm.MaxLevel)
		if err != nil || len(command) > api.MaxCommand {
			t.Fatalf("a part of %d nodes and %d quotas takes %d bytes in the log, and at most %d are allowed; %v", len(add.Nodes), len(add.Quotas), len(command), api.MaxCommand, err)
		}
	}
	if quotas != announced {
		t.Fatalf("%d quotas were announced, and there are %d", announced, quotas)
	}
	return nodes, quotas
}
