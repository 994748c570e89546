package session_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
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

// dump is everything that a table shows, to compare what it was with what it
// is.
func dump(table session.Table[string]) []session.Session[string] {
	var all []session.Session[string]
	for s := range table.All() {
		one := *s
		one.Open = slices.Clone(s.Open)
		all = append(all, one)
	}
	return all
}

// order is one request of a transcript, and what is to become of it.
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
		t.Error("found a session by no nonce")
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
		t.Error("All gives something of an empty table")
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

// naive is a table of one session that forgets nothing: every declaration ever
// accepted, every request ever done.
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
// honest client would send, and compares every outcome.
func TestTableAgreesWithItsNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := session.NewTable[string]()
		table.Put(&session.Session[string]{ID: 1, Nonce: []byte("n"), Lease: api.DefaultLease})
		twin := naive{done: map[api.RequestNumber]session.Request[string]{}}
		copied, shown := table, dump(table) // an older version must stay as it was
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
				copied, shown = table, dump(table)
			}
		}
		if !reflect.DeepEqual(shown, dump(copied)) {
			t.Fatalf("a copy of the table was %+v and is now %+v", shown, dump(copied))
		}
	})
}

// anyMutation draws one that is mostly within the limits, from few numbers, so
// that they meet.
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

// network is an honest client, its requests and answers under way, and the
// master's table. Messages are lost, doubled and overtaken.
type network struct {
	table    session.Table[string]
	highest  api.RequestNumber
	wanted   map[api.RequestNumber]bool
	requests []session.Mutation
	answers  []session.Request[string]
	done     map[api.RequestNumber]string // what was answered first; grows only
}

// send puts a request for number under way, with the client's declaration of
// now.
func (n *network) send(number api.RequestNumber) {
	n.requests = append(n.requests, session.Mutation{
		Session: 1, Number: number, HighestIssued: n.highest, Outstanding: slices.Sorted(maps.Keys(n.wanted)), Hash: uint64(number) * 7,
	})
}

// step does one thing of what might happen next, if it can.
func (n *network) step(t *rapid.T) {
	what := rapid.IntRange(0, 9).Draw(t, "what")
	switch {
	case what <= 2 && len(n.wanted) < 4: // few, so that a run gets through many
		n.highest++
		n.wanted[n.highest] = true
		n.send(n.highest)
	case what == 3 && len(n.wanted) > 0:
		n.send(rapid.SampledFrom(slices.Sorted(maps.Keys(n.wanted))).Draw(t, "ask again"))
	case what == 4 && len(n.wanted) > 0:
		delete(n.wanted, rapid.SampledFrom(slices.Sorted(maps.Keys(n.wanted))).Draw(t, "give up"))
	case what <= 7 && len(n.requests) > 0:
		n.arrive(t, rapid.IntRange(0, len(n.requests)-1).Draw(t, "arrives"), rapid.Bool().Draw(t, "again"))
	case what == 8 && len(n.requests) > 0:
		i := rapid.IntRange(0, len(n.requests)-1).Draw(t, "lost")
		n.requests = slices.Delete(n.requests, i, i+1)
	case len(n.answers) > 0:
		i := rapid.IntRange(0, len(n.answers)-1).Draw(t, "answered")
		delete(n.wanted, n.answers[i].Number)
		n.answers = slices.Delete(n.answers, i, i+1)
	}
}

// arrive lets the i-th request arrive, and leaves a copy under way if it is to
// arrive once more.
func (n *network) arrive(t *rapid.T, i int, again bool) {
	m := n.requests[i]
	if !again {
		n.requests = slices.Delete(n.requests, i, i+1)
	}
	answer, done, err := n.table.Begin(m)
	first, before := n.done[m.Number]
	switch {
	case err != nil && !errors.Is(err, api.InvalidArgument):
		t.Fatalf("request %d was refused with %v", m.Number, err)
	case err != nil && n.wanted[m.Number]:
		t.Fatalf("request %d, whose answer is still wanted, was refused: %v", m.Number, err)
	case err != nil:
		return
	case done && (!before || answer != first):
		t.Fatalf("request %d was answered %q, and %q (%v) before", m.Number, answer, first, before)
	case !done && before:
		t.Fatalf("request %d was done twice", m.Number)
	case !done:
		answer = fmt.Sprintf("answer %d to %d", len(n.done), m.Number)
		n.done[m.Number] = answer
		n.table.Finish(m, answer)
	}
	n.answers = append(n.answers, session.Request[string]{Number: m.Number, Answer: answer})
}

// TestEveryRequestIsDoneAtMostOnce: whatever a network does to the requests and
// answers of a client that numbers them honestly, none is done twice, an answer
// is always the first, and no request is refused while its answer is wanted.
func TestEveryRequestIsDoneAtMostOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &network{table: session.NewTable[string](), wanted: map[api.RequestNumber]bool{}, done: map[api.RequestNumber]string{}}
		n.table.Put(&session.Session[string]{ID: 1, Lease: api.DefaultLease})
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n.step(t)
			mustCheck(t, n.table)
		}
	})
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
	table.Finish(m, "answer") // its session ended while it was being done
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
