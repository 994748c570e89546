package session_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

func TestInstantStopsAtItsEnds(t *testing.T) {
	const latest, earliest = session.Instant(math.MaxInt64), session.Instant(math.MinInt64)
	for _, sum := range []struct {
		from session.Instant
		add  time.Duration
		want session.Instant
	}{
		{5, 7, 12}, {5, -7, -2}, {latest, 1, latest}, {latest - 5, math.MaxInt64, latest},
		{earliest, -1, earliest}, {-5, math.MinInt64, earliest}, {5, math.MinInt64, earliest + 5},
	} {
		if got := sum.from.Add(sum.add); got != sum.want {
			t.Errorf("%d + %d = %d, want %d", sum.from, sum.add, got, sum.want)
		}
	}
	for _, difference := range []struct {
		from, to session.Instant
		want     time.Duration
	}{
		{5, 12, 7}, {12, 5, -7}, {earliest, latest, math.MaxInt64}, {latest, earliest, math.MinInt64},
		{0, earliest, math.MinInt64}, {-1, latest, math.MaxInt64}, {earliest, earliest, 0},
	} {
		if got := difference.to.Sub(difference.from); got != difference.want {
			t.Errorf("%d - %d = %d, want %d", difference.to, difference.from, got, difference.want)
		}
	}
}

// Chubby §2.8: the client's local timeout is a conservative approximation of
// the master's. It counts from the sending of the request, because the reply
// takes time, and allows for the rate of the master's clock.
func TestPaperLocalTimeoutIsConservative(t *testing.T) {
	l := session.NewLocal(at(100), session.Grant{Epoch: 3, Number: 1, Lease: 12 * time.Second})
	if want := at(100 + 11.88); l.End() != want { // 12 s less 1 %
		t.Errorf("a lease of 12 s, asked for at 100 s, ends at %v, want %v", l.End(), want)
	}
	if !l.Extend(at(101), session.Grant{Epoch: 3, Number: 2, Lease: 12 * time.Second, Parked: 7 * time.Second}) {
		t.Fatal("a newer grant does not count")
	}
	if want := at(101 + 18.81); l.End() != want { // 19 s less 1 %
		t.Errorf("a lease of 12 s that began 7 s after a request of 101 s ends at %v, want %v", l.End(), want)
	}
	if want := at(101 + 28.71); l.FreeAt(10*time.Second) != want { // 29 s less 1 %
		t.Errorf("a lock with a delay of 10 s is free at %v, want %v", l.FreeAt(10*time.Second), want)
	}
	if l.FreeAt(0) != l.End() || l.FreeAt(math.MinInt64) != l.End() || l.FreeAt(math.MaxInt64) != l.FreeAt(api.MaxLockDelay) {
		t.Error("a lock-delay outside its limits counts")
	}
}

// Chubby §2.8: when the local timeout passes, the session is in jeopardy; if a
// KeepAlive succeeds within the grace period it is safe again, else it counts
// as expired.
func TestPaperJeopardyAndGrace(t *testing.T) {
	const grace = api.DefaultGrace
	l := session.NewLocal(at(0), session.Grant{Epoch: 1, Number: 1, Lease: 10 * time.Second})
	end := at(9.9)
	for _, look := range []struct {
		now   session.Instant
		grace time.Duration
		want  session.State
	}{
		{at(0), grace, session.Safe}, {end - 1, grace, session.Safe},
		{end, grace, session.Jeopardy}, {end.Add(grace) - 1, grace, session.Jeopardy},
		{end.Add(grace), grace, session.Gone}, {math.MaxInt64, grace, session.Gone},
		{end - 1, 0, session.Safe}, {end, 0, session.Gone}, {end, -1, session.Gone},
		{end - 1, math.MinInt64, session.Safe}, {math.MaxInt64 - 1, math.MaxInt64, session.Jeopardy},
	} {
		if got := l.State(look.now, look.grace); got != look.want {
			t.Errorf("at %v with grace %v: %v, want %v", look.now, look.grace, got, look.want)
		}
	}
	if !l.Extend(at(20), session.Grant{Epoch: 2, Number: 1, Lease: 10 * time.Second}) || l.State(at(21), grace) != session.Safe {
		t.Error("a KeepAlive in the grace period did not make the session safe")
	}
}

// A grant outside its limits begins nothing.
func TestNoLeaseToBeginWith(t *testing.T) {
	const lease = 10 * time.Second
	for _, g := range []session.Grant{{}, {Epoch: 1, Number: 1, Lease: -1}, {Epoch: 1, Number: 1, Lease: 1, Parked: -1}} {
		if l := session.NewLocal(at(3), g); l.End() != at(3) || l.State(at(3), 1) != session.Jeopardy || l.Epoch() != 0 || l.Lease() != 0 {
			t.Errorf("a session that begins with %+v ends at %v", g, l.End())
		}
	}
	if l := session.NewLocal(math.MaxInt64, session.Grant{Epoch: 1, Lease: lease, Parked: lease}); l.End() != math.MaxInt64 {
		t.Errorf("at the end of time, the lease ends at %v", l.End())
	}
}

// TestLocalFollowsTheFormula compares End and FreeAt with the formulas of the
// package comment, computed in big integers. Neither may move back, whatever
// grants arrive.
func TestLocalFollowsTheFormula(t *testing.T) {
	bound := func(sent session.Instant, d ...time.Duration) session.Instant {
		sum := new(big.Int)
		for _, part := range d {
			sum.Add(sum, big.NewInt(int64(part)))
		}
		sum.Mul(sum, big.NewInt(99))
		sum.Div(sum, big.NewInt(100)) // rounds down
		return session.Instant(sum.Add(sum, big.NewInt(int64(sent))).Int64())
	}
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.OneOf(rapid.Int64Range(0, int64(api.MaxLease)), rapid.Int64Range(-5, 300), rapid.Int64(), rapid.SampledFrom([]int64{int64(api.MaxLease) + 100, math.MaxInt64}))
		delay := time.Duration(rapid.Int64Range(0, int64(api.MaxLockDelay)).Draw(t, "delay"))
		l := session.NewLocal(0, session.Grant{})
		end, free := session.Instant(0), bound(0, delay) // of no grant, sent at 0
		var epoch api.Epoch
		var number uint64
		var newest time.Duration
		for range rapid.IntRange(1, 20).Draw(t, "replies") {
			sent := session.Instant(rapid.Int64Range(-1e12, 1e12).Draw(t, "sent"))
			g := session.Grant{
				Epoch: api.Epoch(rapid.IntRange(0, 3).Draw(t, "epoch")), Number: rapid.Uint64Range(0, 3).Draw(t, "number"),
				Lease: time.Duration(length.Draw(t, "lease")), Parked: time.Duration(length.Draw(t, "parked")),
			}
			counts := (g.Epoch > epoch || g.Epoch == epoch && g.Number > number) && g.Lease > 0 && g.Parked >= 0
			if l.Extend(sent, g) != counts {
				t.Fatalf("%+v after epoch %d, number %d: want it to count: %v", g, epoch, number, counts)
			}
			if counts {
				epoch, number = g.Epoch, g.Number
				lease, parked := min(g.Lease, api.MaxLease), min(g.Parked, api.MaxLease)
				newest = lease
				end = max(end, bound(sent, lease, parked))
				free = max(free, bound(sent, lease, parked, delay))
			}
			if l.End() != end || l.Epoch() != epoch || l.Number() != number || l.Lease() != newest {
				t.Fatalf("grant %d of %v in epoch %d, until %d; want %d, %v, %d, %d", l.Number(), l.Lease(), l.Epoch(), l.End(), number, newest, epoch, end)
			}
			if got := l.FreeAt(delay); got > free || got < free-1 {
				t.Fatalf("FreeAt(%v) is %d, want %d or 1 less", delay, got, free)
			}
		}
	})
}

// Chubby §2.8, §5: with leases of 12 s, KeepAlives are exchanged every 7 s.
func TestPaperKeepAliveEverySevenSeconds(t *testing.T) {
	if got := session.Due(api.DefaultLease); got != 7*time.Second {
		t.Errorf("a KeepAlive of a lease of 12 s is parked for %v", got)
	}
}

func TestStateNames(t *testing.T) {
	for state, want := range map[session.State]string{session.Safe: "safe", session.Jeopardy: "jeopardy", session.Gone: "gone", 0: "unknown"} {
		if got := state.String(); got != want {
			t.Errorf("state %d is %q, want %q", uint8(state), got, want)
		}
	}
}
