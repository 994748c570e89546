package session_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

type numbers = []api.RequestNumber

func newTable(t testing.TB, ids ...api.SessionID) session.Table[string] {
	t.Helper()
	table := session.NewTable[string]()
	for _, id := range ids {
		table.Put(&session.Session[string]{ID: id, Nonce: []byte(id.String()), Lease: api.DefaultLease})
	}
	mustCheck(t, table)
	return table
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func mustCheck(t fataler, table session.Table[string]) {
	t.Helper()
	if err := table.Check(); err != nil {
		t.Fatalf("the table broke an invariant: %v", err)
	}
}

// dump returns everything that a table shows, for comparisons.
func dump(table session.Table[string]) []session.Session[string] {
	var all []session.Session[string]
	for s := range table.All() {
		one := *s
		one.Open = slices.Clone(s.Open)
		all = append(all, one)
	}
	return all
}

// play does a request, and says "do", "again: ANSWER", or the name of a code.
func play(table *session.Table[string], m session.Mutation, answer string) string {
	first, done, err := table.Begin(m)
	switch {
	case err != nil:
		return api.CodeOf(err).String()
	case done:
		return "again: " + first
	}
	table.Finish(m, answer)
	return "do"
}

func TestValidate(t *testing.T) {
	many := make(numbers, api.MaxOutstanding+1)
	for i := range many {
		many[i] = api.RequestNumber(i + 1)
	}
	tests := []struct {
		m    session.Mutation
		want api.Code
	}{
		{session.Mutation{Number: 1, HighestIssued: 1, Outstanding: numbers{1}}, api.OK},
		{session.Mutation{Number: 2, HighestIssued: 1 << 50, Outstanding: numbers{2, 1 << 40}}, api.OK},
		{session.Mutation{Number: 256, HighestIssued: 256, Outstanding: many[:256]}, api.OK},
		{session.Mutation{Number: 257, HighestIssued: 257, Outstanding: many}, api.QuotaExceeded},
		{session.Mutation{}, api.InvalidArgument},
		{session.Mutation{Number: 0, HighestIssued: 1, Outstanding: numbers{0, 1}}, api.InvalidArgument},
		{session.Mutation{Number: 2, HighestIssued: 1, Outstanding: numbers{2}}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 1}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 2, Outstanding: numbers{2}}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 2, Outstanding: numbers{0, 1}}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 2, Outstanding: numbers{1, 1}}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 2, Outstanding: numbers{2, 1}}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 2, Outstanding: numbers{1, 3}}, api.InvalidArgument},
		{session.Mutation{Number: 1, HighestIssued: 1 << 53, Outstanding: numbers{1}}, api.InvalidArgument},
	}
	for _, test := range tests {
		if got := api.CodeOf(test.m.Validate()); got != test.want {
			t.Errorf("%+v: %v, want %v", test.m, got, test.want)
		}
	}
}

func TestEndLeavesTheNoncesOfOthers(t *testing.T) {
	table := newTable(t, 1)
	table.Put(&session.Session[string]{ID: 2, Nonce: []byte("s1"), Lease: api.MinLease})
	table.End(1)
	mustCheck(t, table)
	if s, ok := table.ByNonce([]byte("s1")); !ok || s.ID != 2 {
		t.Error("the session that took over the nonce is not found by it")
	}
}

func TestCheckFindsFaults(t *testing.T) {
	sound := session.Session[string]{ID: 1, Nonce: []byte("a"), Lease: api.DefaultLease, HighestIssued: 9, Open: []session.Request[string]{{Number: 3}, {Number: 9}}}
	tests := map[string]func(*session.Session[string]){
		"no id":              func(s *session.Session[string]) { s.ID = 0 },
		"no lease":           func(s *session.Session[string]) { s.Lease = 0 },
		"a long lease":       func(s *session.Session[string]) { s.Lease = api.MaxLease + 1 },
		"a huge number":      func(s *session.Session[string]) { s.HighestIssued = 1 << 60 },
		"many open":          func(s *session.Session[string]) { s.Open = make([]session.Request[string], api.MaxOutstanding+1) },
		"open twice":         func(s *session.Session[string]) { s.Open = []session.Request[string]{{Number: 3}, {Number: 3}} },
		"descending":         func(s *session.Session[string]) { s.Open = []session.Request[string]{{Number: 3}, {Number: 2}} },
		"zero open":          func(s *session.Session[string]) { s.Open = []session.Request[string]{{Number: 0}} },
		"open above highest": func(s *session.Session[string]) { s.HighestIssued = 8 },
		"a nonce twice":      func(s *session.Session[string]) { s.Nonce = []byte("s7") },
	}
	for name, spoil := range tests {
		table := newTable(t, 7)
		s := sound
		table.Put(&s)
		mustCheck(t, table)
		table.End(s.ID)
		spoil(&s)
		table.Put(&s)
		if err := table.Check(); !errors.Is(err, api.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
}

func TestUnknownSession(t *testing.T) {
	table := newTable(t, 1)
	m := session.Mutation{Session: 2, Number: 1, HighestIssued: 1, Outstanding: numbers{1}}
	if _, _, err := table.Begin(m); !errors.Is(err, api.SessionExpired) {
		t.Errorf("a request of no session: %v, want SessionExpired", err)
	}
	table.Finish(m, "answer")
	m.Session = 1
	if got := play(&table, m, "answer"); got != "do" {
		t.Fatalf("first arrival: %q", got)
	}
	table.End(1)
	table.Finish(m, "answer") // its session ended before its answer was stored
	if _, _, err := table.Begin(m); !errors.Is(err, api.SessionExpired) {
		t.Errorf("a retry in an ended session: %v, want SessionExpired", err)
	}
}

// TestFinishKeepsTheFirstAnswer: a second Finish, or one for a number that is
// not open, changes nothing.
func TestFinishKeepsTheFirstAnswer(t *testing.T) {
	table := newTable(t, 1)
	m := session.Mutation{Session: 1, Number: 2, HighestIssued: 2, Outstanding: numbers{1, 2}, Hash: 9}
	play(&table, m, "first")
	before := dump(table)
	table.Finish(m, "second")
	m.Number = 3
	table.Finish(m, "of nothing")
	if after := dump(table); !reflect.DeepEqual(before, after) {
		t.Errorf("%+v became %+v", before, after)
	}
}
