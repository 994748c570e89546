package session_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
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
	odd := []api.RequestNumber{0, 13, api.MaxGeneration, api.MaxGeneration + 1, math.MaxUint64}
	switch rapid.IntRange(0, 39).Draw(t, "odd") {
	case 0:
		m.Number = rapid.SampledFrom(odd).Draw(t, "odd number")
	case 1:
		m.HighestIssued = rapid.SampledFrom(odd).Draw(t, "odd highest")
	case 2:
		slices.Reverse(m.Outstanding)
	}
	return m
}

// network is a correct client, its requests and answers under way, and the
// master's table. Messages are lost, duplicated and reordered.
type network struct {
	table    session.Table[string]
	highest  api.RequestNumber
	wanted   map[api.RequestNumber]bool
	requests []session.Mutation
	answers  []session.Request[string]
	done     map[api.RequestNumber]string // the first answer; never removed
}

// send puts a request for number under way, with the client's present
// declaration.
func (n *network) send(number api.RequestNumber) {
	n.requests = append(n.requests, session.Mutation{
		Session: 1, Number: number, HighestIssued: n.highest, Outstanding: slices.Sorted(maps.Keys(n.wanted)), Hash: uint64(number) * 7,
	})
}

// step does one possible next thing, if it can.
func (n *network) step(t *rapid.T) {
	what := rapid.IntRange(0, 9).Draw(t, "what")
	switch {
	case what <= 2 && len(n.wanted) < 4: // few, so that a run uses many numbers
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

// arrive delivers the i-th request, and leaves a copy under way if again is
// true.
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

// TestEveryRequestIsDoneAtMostOnce: for a client that numbers its requests
// correctly, whatever the network does, no request is done twice, every answer
// is the first one, and no request is refused while its answer is wanted.
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
