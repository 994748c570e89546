package master

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
type naiveQueues []*waiter

func (n naiveQueues) where(wanted func(*waiter) bool) []waiterKey {
	var keys []waiterKey
	for _, w := range n {
		if wanted(w) {
			keys = append(keys, w.key())
		}
	}
	return sortedKeys(keys)
}

func sortedKeys(keys []waiterKey) []waiterKey {
	slices.SortFunc(keys, func(a, b waiterKey) int {
		return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.number, b.number))
	})
	return keys
}

func keysOf(waiters []*waiter) []waiterKey {
	var keys []waiterKey
	for _, w := range waiters {
		keys = append(keys, w.key())
	}
	return sortedKeys(keys)
}

// The indexes of the queues give the same results as a scan of all waiters.
func TestQueuesAnswerAsTheirTwin(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, twin := newQueues(newOutbox(), 32<<10), naiveQueues{}
		names := []api.Name{"/a", "/b", "/c"}
		drop := func(key waiterKey) {
			twin = slices.DeleteFunc(twin, func(w *waiter) bool { return w.key() == key })
		}
		for step := range 400 {
			now := session.Instant(step)
			key := waiterKey{session: api.SessionID(1 + r.IntN(4)), number: api.RequestNumber(1 + r.IntN(6))}
			switch r.IntN(8) {
			case 0, 1, 2:
				w := &waiter{lock: namespace.Ref{Name: names[r.IntN(3)], Instance: api.Generation(1 + r.IntN(2))}, claim: raftfsm.Claim{Mutation: session.Mutation{Session: key.session, Number: key.number}}}
				if r.IntN(3) == 0 {
					w.ticket = Ticket{Epoch: 1, Number: seed*1000 + uint64(step)}
				}
				got := must(q.join(w, 2, 1000))(t)
				if got == w {
					twin = append(twin, w)
				}
			case 3:
				if got := q.removeWaiter(key); (got != nil) != slices.ContainsFunc(twin, func(w *waiter) bool { return w.key() == key }) {
					t.Fatalf("seed %d, step %d: leave(%v) = %v", seed, step, key, got)
				}
				drop(key)
			case 4, 5:
				if w := q.get(key); w != nil {
					q.detach(w, now+session.Instant(r.IntN(20)))
				}
			case 6:
				if w := q.get(key); w != nil {
					w.offered = !w.offered
				}
			case 7:
				gone := twin.where(func(w *waiter) bool { end, absent := q.absent.At(w); return absent && end < now && !w.offered })
				q.dropAbsent(now, 1000)
				for _, key := range gone {
					drop(key)
				}
			}
			compareQueues(t, q, twin, names)
			stopIf(t, t.Failed(), "seed %d, step %d", seed, step)
		}
	}
}

func compareQueues(t *testing.T, q *queues, twin naiveQueues, names []api.Name) {
	t.Helper()
	waiting := 0
	for id := range api.SessionID(6) {
		got, want := keysOf(slices.Collect(q.ofSession(id))), twin.where(func(w *waiter) bool { return w.claim.Mutation.Session == id })
		failIf(t, !slices.Equal(got, want), "session %d waits with %v, want %v", id, got, want)
		waiting += len(got)
	}
	equal(t, waiting, len(twin), "%d wait")
	for _, name := range names {
		for instance := range api.Generation(3) {
			node := namespace.Ref{Name: name, Instance: instance}
			if got, want := keysOf(q.ofNode(node)), twin.where(func(w *waiter) bool { return w.lock == node }); !slices.Equal(got, want) {
				t.Errorf("%v wait for %v, want %v", got, node, want)
			}
		}
		line := slices.DeleteFunc(slices.Clone(twin), func(w *waiter) bool { return w.lock.Name != name })
		slices.SortFunc(line, func(a, b *waiter) int { return byTicket(a, b.ticket) })
		for i, w := range line {
			if place, of := q.position(w); place != i+1 || of != len(line) {
				t.Errorf("%v has place %d of %d, want %d of %d", w.key(), place, of, i+1, len(line))
			}
		}
	}
	got := twin.where(func(w *waiter) bool { _, absent := q.absent.At(w); return absent })
	if want := twin.where(func(w *waiter) bool { return w.isAbsent() }); !slices.Equal(got, want) || len(got) != q.absent.Len() {
		t.Errorf("%v are absent, want %v", got, want)
	}
}

// However many waiters were absent for too long, one call drops a bounded number, and says whether there are more.
func TestForgetIsBounded(t *testing.T) {
	q := newQueues(newOutbox(), 32<<10)
	for i := range 10 {
		w, err := q.join(&waiter{lock: namespace.Ref{Name: "/x"}, claim: raftfsm.Claim{Mutation: session.Mutation{Session: 1, Number: api.RequestNumber(i + 1)}}}, 1, 100)
		noErr(t, err)
		q.detach(w, session.Instant(i))
	}
	for _, want := range []struct {
		left int
		more bool
	}{{6, true}, {2, true}, {0, false}} {
		if more := q.dropAbsent(100, 4); more != want.more || len(q.bySession[1]) != want.left {
			t.Errorf("%d are left, more: %v; want %+v", len(q.bySession[1]), more, want)
		}
	}
}

// After a fail-over newcomers take all places of a queue, and of a principal, before those come back who were in it: they have their
// places all the same. They are as many again at most, and newcomers have none of theirs.
func TestPlacesAreKeptOverFailOvers(t *testing.T) {
	lock := namespace.Ref{Name: "/a", Instance: 1}
	number := api.RequestNumber(0)
	join := func(q *queues, t Ticket, allowed int) error {
		number++
		_, err := q.join(&waiter{lock: lock, who: "p", ticket: t, claim: raftfsm.Claim{Mutation: session.Mutation{Session: 1, Number: number}}}, 2, allowed)
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
		if w := q.byName[lock.Name][0]; w.ticket != (Ticket{Epoch: 1, Number: 1}) {
			t.Errorf("the first in the queue has ticket %v", w.ticket)
		}
	}
}

// A delay is timed under its own ID: an earlier delay on the same name neither ends it nor replaces it.
func TestDelaysAreTimedByID(t *testing.T) {
	d := newDelays()
	d.start("/f", 5, 10, 0)
	d.start("/f", 7, 3, 1)
	if over := d.due(9); over != nil {
		t.Errorf("%v has ended at 9; the first delay on the name runs until 10", over)
	}
	d.start("/f", 5, 0, 9) // the end of the first could not be proposed
	if over := d.due(10); len(over) != 1 || over[0].Name != "/f" || over[0].ID != 7 {
		t.Errorf("at 10 over: %v, want delay 7", over)
	}
	d.start("/f", 7, 0, 11)
	d.start("/f", 8, 5, 11)
	d.start("/f", 7, 0, 12)
	if over := d.due(15); over != nil {
		t.Errorf("%v has ended at 15; the latest delay runs until 16", over)
	}
}

// Consecutive readers take one turn, a writer takes its own.
func TestTurnsBefore(t *testing.T) {
	q := newQueues(newOutbox(), 32<<10)
	r, w := api.Shared, api.Exclusive
	modes := []api.LockMode{w, w, r, r, w, r}
	for i, mode := range modes {
		must(q.join(&waiter{
			lock:  namespace.Ref{Name: "/x"},
			claim: raftfsm.Claim{Mode: mode, Mutation: session.Mutation{Session: 1, Number: api.RequestNumber(i + 1)}},
		}, 1, 100))(t)
	}
	var got []int
	for ahead, w := range q.inOrder("/x") {
		if w.claim.Mode != modes[len(got)] {
			t.Errorf("place %d is that of a %v", len(got)+1, w.claim.Mode)
		}
		got = append(got, ahead)
	}
	if want := []int{0, 1, 2, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("turns before each: %v, want %v", got, want)
	}
}
