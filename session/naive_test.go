package session_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// naive is a table of one session that forgets nothing: it keeps every accepted
// declaration and every request that was done.
type naive struct {
	declared []session.Mutation
	done     map[api.RequestNumber]session.Request[string]
}

func (n *naive) finished(number api.RequestNumber, declared []session.Mutation) bool {
	return slices.ContainsFunc(declared, func(d session.Mutation) bool {
		return number <= d.HighestIssued && !slices.Contains(d.Outstanding, number)
	})
}

func (n *naive) play(m session.Mutation, answer string) string {
	if err := m.Validate(); err != nil {
		return api.CodeOf(err).String()
	}
	declared := append(slices.Clone(n.declared), m)
	if n.finished(m.Number, declared) {
		return api.InvalidArgument.String()
	}
	r, ok := n.done[m.Number]
	if ok && r.Hash != m.Hash && r.Hash != 0 && m.Hash != 0 {
		return api.InvalidArgument.String()
	}
	n.declared = declared
	if ok {
		return "again: " + r.Answer
	}
	n.done[m.Number] = session.Request[string]{Number: m.Number, Done: true, Hash: m.Hash, Answer: answer}
	return "do"
}

// TestTableAgreesWithItsNaiveTwin sends arbitrary mutations, most of which no
// correct client would send, and compares every outcome.
func TestTableAgreesWithItsNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := session.NewTable[string]()
		table.Put(&session.Session[string]{ID: 1, Nonce: []byte("n"), Lease: api.DefaultLease})
		twin := naive{done: map[api.RequestNumber]session.Request[string]{}}
		if rapid.Bool().Draw(t, "in place") {
			table.Edit()
		}
		copied := table.Snapshot() // must stay as it was
		shown := dump(copied)
		for i := range rapid.IntRange(1, 60).Draw(t, "requests") {
			m := anyMutation(t)
			before := dump(table)
			want := twin.play(m, fmt.Sprintf("a%d", i))
			got := play(&table, m, fmt.Sprintf("a%d", i))
			if got != want {
				t.Fatalf("request %d, %+v: %q, want %q; the session is %+v", i, m, got, want, before)
			}
			if _, refused := map[string]bool{"InvalidArgument": true, "QuotaExceeded": true}[got]; refused && !reflect.DeepEqual(before, dump(table)) {
				t.Fatalf("request %d, %+v, was refused and changed %+v to %+v", i, m, before, dump(table))
			}
			mustCheck(t, table)
			if rapid.IntRange(0, 9).Draw(t, "snapshot") == 0 {
				copied, shown = table.Snapshot(), dump(table)
			}
		}
		if !reflect.DeepEqual(shown, dump(copied)) {
			t.Fatalf("a snapshot of the table was %+v and is now %+v", shown, dump(copied))
		}
	})
}

// When changes in place have ended, a copy is a snapshot again: it has no record that later requests
// change.
func TestCopyAfterChangesInPlace(t *testing.T) {
	table := session.NewTable[string]()
	table.Put(&session.Session[string]{ID: 1, Nonce: []byte("n"), Lease: api.DefaultLease})
	table.Edit()
	request := session.Mutation{Session: 1, Number: 1, HighestIssued: 1, Outstanding: []api.RequestNumber{1}}
	if got := play(&table, request, "first"); got != "do" {
		t.Fatalf("the first request: %s", got)
	}
	table.Settle()
	copied, shown := table, dump(table)
	request.Number, request.HighestIssued, request.Outstanding = 2, 2, []api.RequestNumber{2}
	if got := play(&table, request, "second"); got != "do" {
		t.Fatalf("the second request: %s", got)
	}
	if !reflect.DeepEqual(shown, dump(copied)) {
		t.Errorf("a copy of the table was %+v and is now %+v", shown, dump(copied))
	}
}

// anyMutation draws a mutation that is mostly within the limits, with few
// different numbers, so that they collide.
func anyMutation(t *rapid.T) session.Mutation {
	number := rapid.Uint64Range(1, 12)
	highest := number.Draw(t, "highest")
	m := session.Mutation{Session: 1, HighestIssued: api.RequestNumber(highest), Hash: rapid.Uint64Range(0, 2).Draw(t, "hash")}
	for n := uint64(1); n <= highest; n++ {
		if rapid.Bool().Draw(t, "outstanding") {
			m.Outstanding = append(m.Outstanding, api.RequestNumber(n))
		}
	}
	if len(m.Outstanding) > 0 && rapid.IntRange(0, 9).Draw(t, "honest number") > 0 {
		m.Number = rapid.SampledFrom(m.Outstanding).Draw(t, "number")
	} else {
		m.Number = api.RequestNumber(number.Draw(t, "number"))
	}
	return m
}
