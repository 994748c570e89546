package tables

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// naiveQueues specifies queues, without an index: it is a list of all waiters.
type naiveQueues []*Waiter

func (n naiveQueues) where(wanted func(*Waiter) bool) []WaiterKey {
	var keys []WaiterKey
	for _, w := range n {
		if wanted(w) {
			keys = append(keys, w.Key())
		}
	}
	return sortedKeys(keys)
}

func sortedKeys(keys []WaiterKey) []WaiterKey {
	slices.SortFunc(keys, func(a, b WaiterKey) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Number, b.Number))
	})
	return keys
}

func keysOf(waiters []*Waiter) []WaiterKey {
	var keys []WaiterKey
	for _, w := range waiters {
		keys = append(keys, w.Key())
	}
	return sortedKeys(keys)
}

// The indexes of the queues give the same results as a scan of all waiters.
func TestQueuesAnswerAsTheirTwin(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, twin := newQueues(newOutbox(), 32<<10), naiveQueues{}
		names := []api.Name{"/a", "/b", "/c"}
		drop := func(key WaiterKey) {
			twin = slices.DeleteFunc(twin, func(w *Waiter) bool { return w.Key() == key })
		}
		for step := range 400 {
			now := session.Instant(step)
			key := WaiterKey{Session: api.SessionID(1 + r.IntN(4)), Number: api.RequestNumber(1 + r.IntN(6))}
			switch r.IntN(8) {
			case 0, 1, 2:
				w := &Waiter{Lock: namespace.Ref{Name: names[r.IntN(3)], Instance: api.Generation(1 + r.IntN(2))}, LockRequest: LockRequest{Claim: raftfsm.Claim{Mutation: session.Mutation{Session: key.Session, Number: key.Number}}}}
				if r.IntN(3) == 0 {
					w.Ticket = Ticket{Epoch: 1, Number: seed*1000 + uint64(step)}
				}
				got := must(q.Join(w, 2, 1000))(t)
				if got == w {
					twin = append(twin, w)
				}
			case 3:
				if got := q.RemoveWaiter(key); (got != nil) != slices.ContainsFunc(twin, func(w *Waiter) bool { return w.Key() == key }) {
					t.Fatalf("seed %d, step %d: leave(%v) = %v", seed, step, key, got)
				}
				drop(key)
			case 4, 5:
				if w := q.Get(key); w != nil {
					q.Detach(w, now+session.Instant(r.IntN(20)))
				}
			case 6:
				if w := q.Get(key); w != nil {
					w.Offered = !w.Offered
				}
			case 7:
				gone := twin.where(func(w *Waiter) bool { end, absent := q.Absent.At(w); return absent && end < now && !w.Offered })
				q.DropAbsent(now, 1000)
				for _, key := range gone {
					drop(key)
				}
			}
			compareQueues(t, q, twin, names)
			stopIf(t, t.Failed(), "seed %d, step %d", seed, step)
		}
	}
}

func compareQueues(t *testing.T, q *Queues, twin naiveQueues, names []api.Name) {
	t.Helper()
	waiting := 0
	for id := range api.SessionID(6) {
		got, want := keysOf(slices.Collect(q.OfSession(id))), twin.where(func(w *Waiter) bool { return w.Claim.Mutation.Session == id })
		failIf(t, !slices.Equal(got, want), "session %d waits with %v, want %v", id, got, want)
		waiting += len(got)
	}
	equal(t, waiting, len(twin), "%d wait")
	for _, name := range names {
		for instance := range api.Generation(3) {
			node := namespace.Ref{Name: name, Instance: instance}
			if got, want := keysOf(q.OfNode(node)), twin.where(func(w *Waiter) bool { return w.Lock == node }); !slices.Equal(got, want) {
				t.Errorf("%v wait for %v, want %v", got, node, want)
			}
		}
		line := slices.DeleteFunc(slices.Clone(twin), func(w *Waiter) bool { return w.Lock.Name != name })
		slices.SortFunc(line, func(a, b *Waiter) int { return byTicket(a, b.Ticket) })
		for i, w := range line {
			if place, of := q.Position(w); place != i+1 || of != len(line) {
				t.Errorf("%v has place %d of %d, want %d of %d", w.Key(), place, of, i+1, len(line))
			}
		}
	}
	got := twin.where(func(w *Waiter) bool { _, absent := q.Absent.At(w); return absent })
	if want := twin.where(func(w *Waiter) bool { return w.IsAbsent() }); !slices.Equal(got, want) || len(got) != q.Absent.Len() {
		t.Errorf("%v are absent, want %v", got, want)
	}
}

// However many waiters were absent for too long, one call drops a bounded number, and says whether there are more.
func TestForgetIsBounded(t *testing.T) {
	q := newQueues(newOutbox(), 32<<10)
	for i := range 10 {
		w := must(q.Join(&Waiter{Lock: namespace.Ref{Name: "/x"}, LockRequest: LockRequest{Claim: raftfsm.Claim{Mutation: session.Mutation{Session: 1, Number: api.RequestNumber(i + 1)}}}}, 1, 100))(t)
		q.Detach(w, session.Instant(i))
	}
	for _, want := range []struct {
		left int
		more bool
	}{{6, true}, {2, true}, {0, false}} {
		if more := q.DropAbsent(100, 4); more != want.more || len(q.BySession[1]) != want.left {
			t.Errorf("%d are left, more: %v; want %+v", len(q.BySession[1]), more, want)
		}
	}
}

// After a fail-over newcomers take all places of a queue, and of a principal, before those come back who were in it: they have their
// places all the same. They are as many again at most, and newcomers have none of theirs.
func TestPlacesAreKeptOverFailOvers(t *testing.T) {
	lock := namespace.Ref{Name: "/a", Instance: 1}
	number := api.RequestNumber(0)
	join := func(q *Queues, t Ticket, allowed int) error {
		number++
		_, err := q.Join(&Waiter{Lock: lock, Who: "p", LockRequest: LockRequest{Ticket: t, Claim: raftfsm.Claim{Mutation: session.Mutation{Session: 1, Number: number}}}}, 2, allowed)
		return err
	}
	for name, one := range map[string]struct{ places, allowed int }{
		"of a queue":     {api.MaxWaiters, 10 * api.MaxWaiters},
		"of a principal": {5, 5},
	} {
		q := newQueues(newOutbox(), 32<<10)
		for i := range one.places {
			if err := join(q, Ticket{}, one.allowed); err != nil {
				t.Fatalf("newcomer %d: %v", i, err)
			}
		}
		if join(q, Ticket{}, one.allowed) == nil || join(q, Ticket{Epoch: 2, Number: 1}, one.allowed) == nil {
			t.Errorf("places %s: there is room for another newcomer", name)
		}
		for i := range one.places {
			if err := join(q, Ticket{Epoch: 1, Number: uint64(i + 1)}, one.allowed); err != nil {
				t.Fatalf("places %s: one comes back with ticket %d: %v", name, i, err)
			}
		}
		failIf(t, join(q, Ticket{Epoch: 1, Number: 1 << 20}, one.allowed) == nil, "places %s have no end", name)
		if w := q.ByName[lock.Name][0]; w.Ticket != (Ticket{Epoch: 1, Number: 1}) {
			t.Errorf("the first in the queue has ticket %v", w.Ticket)
		}
	}
}

// A delay is timed under its own ID: an earlier delay on the same name neither ends it nor replaces it.
func TestDelaysAreTimedByID(t *testing.T) {
	d := newDelays()
	d.Start("/f", 5, 10, 0)
	d.Start("/f", 7, 3, 1)
	if over := d.Due(9); over != nil {
		t.Errorf("%v has ended at 9; the first delay on the name runs until 10", over)
	}
	d.Start("/f", 5, 0, 9) // the end of the first could not be proposed
	if over := d.Due(10); len(over) != 1 || over[0].Name != "/f" || over[0].ID != 7 {
		t.Errorf("at 10 over: %v, want delay 7", over)
	}
	d.Start("/f", 7, 0, 11)
	d.Start("/f", 8, 5, 11)
	d.Start("/f", 7, 0, 12)
	if over := d.Due(15); over != nil {
		t.Errorf("%v has ended at 15; the latest delay runs until 16", over)
	}
}

// Consecutive readers take one turn, a writer takes its own.
func TestTurnsBefore(t *testing.T) {
	q := newQueues(newOutbox(), 32<<10)
	r, w := api.Shared, api.Exclusive
	modes := []api.LockMode{w, w, r, r, w, r}
	for i, mode := range modes {
		must(q.Join(&Waiter{
			Lock:        namespace.Ref{Name: "/x"},
			LockRequest: LockRequest{Claim: raftfsm.Claim{Mode: mode, Mutation: session.Mutation{Session: 1, Number: api.RequestNumber(i + 1)}}},
		}, 1, 100))(t)
	}
	var got []int
	for ahead, w := range q.InOrder("/x") {
		if w.Claim.Mode != modes[len(got)] {
			t.Errorf("place %d is that of a %v", len(got)+1, w.Claim.Mode)
		}
		got = append(got, ahead)
	}
	if want := []int{0, 1, 2, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("turns before each: %v, want %v", got, want)
	}
}
