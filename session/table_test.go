package session_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

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

// order is one request of a transcript, and its expected outcome.
type order struct {
	number, highest api.RequestNumber
	outstanding     numbers
	hash            uint64
	want            string // "do", "again: ANSWER", or the name of a code
}

func (o order) mutation(id api.SessionID) session.Mutation {
	return session.Mutation{Session: id, Number: o.number, HighestIssued: o.highest, Outstanding: o.outstanding, Hash: o.hash}
}

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

func TestBegin(t *testing.T) {
	tests := []struct {
		name   string
		orders []order // the answer to the i-th, from 1, is "ai"
	}{
		{"a retry gets the first answer", []order{
			{1, 1, numbers{1}, 5, "do"},
			{1, 1, numbers{1}, 5, "again: a1"},
			{1, 4, numbers{1, 4}, 5, "again: a1"},
		}},
		{"a number is not used for two things", []order{
			{1, 1, numbers{1}, 5, "do"},
			{1, 1, numbers{1}, 6, "InvalidArgument"},
			{1, 1, numbers{1}, 5, "again: a1"},
		}},
		{"a delayed copy of a finished request is never done", []order{
			{1, 1, numbers{1}, 5, "do"},
			{2, 2, numbers{2}, 5, "do"},
			{1, 1, numbers{1}, 5, "InvalidArgument"},
		}},
		{"nor one of a request that was given up before it arrived", []order{
			{3, 3, numbers{3}, 5, "do"},
			{2, 2, numbers{2}, 5, "InvalidArgument"},
			{1, 2, numbers{1, 2}, 5, "InvalidArgument"},
		}},
		{"a request that later ones overtook is done when it comes", []order{
			{8, 8, numbers{7, 8}, 5, "do"},
			{9, 9, numbers{7, 9}, 5, "do"},
			{7, 7, numbers{7}, 5, "do"},
			{7, 7, numbers{7}, 5, "again: a3"},
			{9, 9, numbers{7, 9}, 5, "again: a2"},
		}},
		{"an old declaration does not re-open", []order{
			{4, 4, numbers{4}, 5, "do"},
			{4, 4, numbers{3, 4}, 5, "again: a1"},
			{3, 4, numbers{3, 4}, 5, "InvalidArgument"},
		}},
		{"an old declaration finishes what it does not list", []order{
			{1, 1, numbers{1}, 5, "do"},
			{3, 3, numbers{1, 2, 3}, 5, "do"},
			{2, 2, numbers{2}, 5, "do"},
			{1, 1, numbers{1}, 5, "InvalidArgument"},
			{3, 3, numbers{3}, 5, "again: a2"},
		}},
		{"a withdrawal, whose hash is 0, finds whatever was asked", []order{
			{1, 1, numbers{1}, 5, "do"},
			{1, 1, numbers{1}, 0, "again: a1"},
		}},
		{"and if it comes first, whatever is asked finds it", []order{
			{1, 1, numbers{1}, 0, "do"},
			{1, 1, numbers{1}, 5, "again: a1"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := newTable(t, 1)
			for i, o := range test.orders {
				if got := play(&table, o.mutation(1), fmt.Sprintf("a%d", i+1)); got != o.want {
					t.Fatalf("request %d, %+v: %q, want %q", i+1, o, got, o.want)
				}
				mustCheck(t, table)
			}
		})
	}
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

func TestTableKeepsRecords(t *testing.T) {
	table := newTable(t, 1, 2, 300)
	before := table
	if _, ok := table.Get(4); ok {
		t.Error("found session 4, which was never put")
	}
	if _, ok := table.ByNonce(nil); ok {
		t.Error("found a session by the empty nonce")
	}
	var ids []api.SessionID
	for s := range table.All() {
		ids = append(ids, s.ID)
		table.End(s.ID) // must not disturb the iteration
	}
	if want := []api.SessionID{1, 2, 300}; !slices.Equal(ids, want) {
		t.Errorf("All gives %v, want %v", ids, want)
	}
	if _, ok := table.ByNonce([]byte("s2")); ok || table.Len() != 0 || table.End(2) {
		t.Error("an ended session is still there")
	}
	if s, ok := before.ByNonce([]byte("s2")); !ok || s.ID != 2 || before.Len() != 3 {
		t.Error("the copy of the table changed with it")
	}
	for range table.All() {
		t.Error("All returns sessions of an empty table")
	}
	mustCheck(t, table)
	mustCheck(t, before)
}

func TestPutReplacesTheNonce(t *testing.T) {
	table := newTable(t, 1)
	table.Put(&session.Session[string]{ID: 1, Nonce: []byte("other"), Lease: api.MinLease})
	mustCheck(t, table)
	if _, ok := table.ByNonce([]byte("s1")); ok || table.Len() != 1 {
		t.Error("the replaced session is still found")
	}
	if s, ok := table.ByNonce([]byte("other")); !ok || s.ID != 1 || s.Lease != api.MinLease {
		t.Error("the new one is not found")
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

func TestRaiseLease(t *testing.T) {
	table := newTable(t, 1)
	before, shown := table, dump(table)
	for _, step := range []struct {
		id         api.SessionID
		lease      time.Duration
		want       api.Code
		afterwards time.Duration
	}{
		{1, 20 * time.Second, api.OK, 20 * time.Second},
		{1, 15 * time.Second, api.OK, 20 * time.Second},
		{1, -time.Second, api.OK, 20 * time.Second},
		{1, api.MaxLease + 1, api.InvalidArgument, 20 * time.Second},
		{1, api.MaxLease, api.OK, api.MaxLease},
		{2, time.Second, api.SessionExpired, api.MaxLease},
	} {
		if got := api.CodeOf(table.RaiseLease(step.id, step.lease)); got != step.want {
			t.Errorf("raise %v to %v: %v, want %v", step.id, step.lease, got, step.want)
		}
		if s, _ := table.Get(1); s.Lease != step.afterwards {
			t.Errorf("after raising %v to %v the lease is %v, want %v", step.id, step.lease, s.Lease, step.afterwards)
		}
	}
	if s, ok := table.ByNonce([]byte("s1")); !ok || s.Lease != api.MaxLease {
		t.Error("the nonce leads to an old record")
	}
	if !reflect.DeepEqual(shown, dump(before)) {
		t.Error("a copy of the table changed with it")
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
	m := order{number: 2, highest: 2, outstanding: numbers{1, 2}, hash: 9}.mutation(1)
	play(&table, m, "first")
	before := dump(table)
	table.Finish(m, "second")
	m.Number = 3
	table.Finish(m, "of nothing")
	if after := dump(table); !reflect.DeepEqual(before, after) {
		t.Errorf("%+v became %+v", before, after)
	}
}
