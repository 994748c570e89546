package master

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		q, twin := newQueues(newOutbox()), naiveQueues{}
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
	q := newQueues(newOutbox())
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
		q := newQueues(newOutbox())
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

// idle are ways in which a client may ask to release a lock that it does not hold, or may ask for too much.
func idle(m *soloMaster) map[string]func(t *testing.T, c *soloClient, h Handle, by session.Mutation) {
	return map[string]func(t *testing.T, c *soloClient, h Handle, by session.Mutation){
		"a Release of another's lock": func(t *testing.T, _ *soloClient, h Handle, by session.Mutation) {
			_ = m.Locks.Release(t.Context(), by, h, 1)
		},
		"a break without the right to it": func(t *testing.T, _ *soloClient, h Handle, by session.Mutation) {
			_ = m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: by, Lock: h.Node, Why: "impatience", Now: true})
		},
		"the end of a session that has the file open": func(t *testing.T, c *soloClient, _ Handle, _ session.Mutation) {
			_ = m.Sessions.End(t.Context(), c.who.Session)
		},
	}
}

// private makes the directory /d: no client may change the ACL of a node in it, or break its lock.
func private(t *testing.T) func(s *raftfsm.State) {
	return func(s *raftfsm.State) {
		r := with(t, s, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: make([]byte, 16), Principal: "root", Lease: 12 * time.Second}})
		by := func(n api.RequestNumber) session.Mutation {
			return session.Mutation{Session: r[0].Session, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: 1}
		}
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: by(1), Name: namespace.ACLFile("nobody"), Create: api.MustCreate, Kind: api.File}},
			raftfsm.Command{Open: &raftfsm.Open{Mutation: by(2), Name: "/d", Create: api.MustCreate, Kind: api.Directory, ACL: api.ACL{Change: "nobody"}}})
	}
}

// A lock is handed over in the entry that frees it, whatever other clients ask for that do not hold
// it: no command that cannot free the lock carries its waiters.
func TestStrangersNameNoSuccessor(t *testing.T) {
	for what := range idle(nil) {
		t.Run(what, func(t *testing.T) {
			inSolo(t, private(t), func(t *testing.T, m *soloMaster) {
				var c []*soloClient
				var h []Handle
				for i := range byte(3) {
					one := m.client(t, i+1)
					go one.keep(t.Context())
					c, h = append(c, one), append(h, one.openEphemeral(t, "/ls/local/d/f"))
				}
				c[1].watchLock(t, "/ls/local/d/f")
				held := c[0].try(t, h[0], api.Exclusive)
				waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
				by, release := c[2].mutation(), c[0].mutation()
				m.together(t, func() { idle(m)[what](t, c[2], h[2], by) },
					func() {
						report(t, m.Locks.Release(t.Context(), release, h[0], held.Generation))
					})
				report(t, answered(t, waits).err)
				if told := c[1].vacated(); len(told) > 0 {
					t.Errorf("the lock was never vacant, and there are events with tokens %v", told)
				}
			})
		})
	}
}

// A client that asks for that again and again does not keep waiters from a free lock.
func TestStrangersKeepNobodyFromAFreeLock(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		var asked atomic.Bool   // it has asked often enough
		m.applying.set(func() { // there is always such a request on its way
			if !asked.Load() {
				by := c[2].mutation()
				go func() { _ = m.Locks.Release(t.Context(), by, h[2], 1) }()
				time.Sleep(time.Millisecond + 7*time.Nanosecond) // never together with a tick of the clock
			}
		})
		for round := range 4 {
			held := c[0].try(t, h[0], api.Exclusive)
			waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
			time.Sleep(time.Duration(round)*time.Millisecond + 500*time.Microsecond)
			noErr(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], held.Generation))
			time.Sleep(5 * time.Second)
			stopIf(t, stillAsks(waits), "it waits in vain; the lock is held by %v", m.holders())
			got := <-waits
			noErr(t, m.Locks.Release(t.Context(), c[1].mutation(), h[1], got.Generation))
		}
		asked.Store(true)
		synctest.Wait()
	})
}

// at returns the instant that is d after the beginning.
func at(d time.Duration) session.Instant { return session.Instant(0).Add(d) }

func TestEstimate(t *testing.T) {
	const held, free = true, false
	u := newHoldTimes(func(api.Name, time.Duration) {})
	asked := func(now time.Duration, held bool, ahead int, want time.Duration) {
		t.Helper()
		if got := u.estimateWait("/x", held, ahead, at(now)); got != want {
			t.Errorf("at %v with %d before: %v, want %v", now, ahead, got, want)
		}
	}
	asked(0, held, 0, 0) // granted before this epoch
	u.beginHold("/x", holdTime{generation: 1}, at(0))
	asked(10*time.Second, held, 0, 0) // the first turn
	u.endHold("/x", at(time.Minute))
	u.endHold("/x", at(9*time.Minute)) // it had ended
	asked(9*time.Minute, free, 2, 2*time.Minute)

	u.beginHold("/x", holdTime{generation: 2}, at(10*time.Minute))
	u.beginHold("/x", holdTime{generation: 2}, at(10*time.Minute+30*time.Second)) // another reader, in the same turn
	asked(10*time.Minute+20*time.Second, held, 0, 40*time.Second)
	asked(10*time.Minute+20*time.Second, held, 3, 3*time.Minute+40*time.Second)
	asked(11*time.Minute, held, 3, 0) // longer than usual

	u.beginHold("/x", holdTime{generation: 3}, at(15*time.Minute)) // handed over after 5 minutes: 1m + (5m-1m)/4
	asked(15*time.Minute, held, 1, 4*time.Minute)

	u.beginHold("/x", holdTime{generation: 4, cached: true}, at(16*time.Minute)) // may be kept unused
	asked(16*time.Minute, held, 1, 0)
	u.endHold("/x", at(2*time.Hour)) // it does not count
	asked(2*time.Hour, free, 1, 105*time.Second)
	u.beginHold("/x", holdTime{generation: 5}, at(3*time.Hour))
	u.beginHold("/x", holdTime{generation: 5, cached: true}, at(3*time.Hour)) // of two readers one may keep it unused
	asked(3*time.Hour, held, 1, 0)
	u.endHold("/x", at(5*time.Hour))
	asked(5*time.Hour, free, 1, 105*time.Second)
	equal(t, u.estimateWait("/y", free, 1, at(0)), 0, "of a lock that was never held: %v")
}

// The number of known locks is bounded: those granted longest ago are removed first.
func TestTurnsAreBounded(t *testing.T) {
	u := newHoldTimes(func(api.Name, time.Duration) {})
	for i := range maxHoldTimes + 1 {
		name := api.Name(fmt.Sprint("/", i))
		u.beginHold(name, holdTime{generation: 1}, at(0))
		u.endHold(name, at(time.Second))
	}
	equal(t, u.byName.Len(), maxHoldTimes, "%d locks are known")
	if u.estimateWait("/0", false, 1, at(0)) != 0 || u.estimateWait("/1", false, 1, at(0)) == 0 {
		t.Error("the removed lock was not the oldest")
	}
}

// Consecutive readers take one turn, a writer takes its own.
func TestTurnsBefore(t *testing.T) {
	q := newQueues(newOutbox())
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
