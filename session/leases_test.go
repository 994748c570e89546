package session_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// at is an instant so many seconds after the origin of a clock.
func at(seconds float64) session.Instant { return session.Instant(seconds * 1e9) }

// tick runs the clock loop from one instant to another without a pause, and returns the sessions that expired.
func tick(l *session.Leases, from, to session.Instant) (expired []api.SessionID) {
	for now := from; ; now = min(now.Add(session.MaxTick), to) {
		expired = append(expired, l.Tick(now, 0, math.MaxInt)...)
		if now == to {
			return expired
		}
	}
}

// Chubby §2.8: the master does not end a session during its lease; afterwards
// it may.
func TestPaperMasterKeepsTheSessionForItsLease(t *testing.T) {
	l := session.NewLeases()
	l.Start(7, 12*time.Second, at(0))
	if expired := tick(l, at(0), at(12)-1); expired != nil || !l.Alive(7) {
		t.Fatalf("%v expired a nanosecond before the end of its lease", expired)
	}
	if expired := tick(l, at(12)-1, at(12)); !slices.Equal(expired, []api.SessionID{7}) || l.Alive(7) {
		t.Fatalf("%v expired at the end of the lease, want session 7", expired)
	}
	if again := tick(l, at(12), at(13)); again != nil {
		t.Errorf("%v expired a second time", again)
	}
}

// Chubby §2.8: the master may move a lease timeout forward, and never back. It
// does so on creation, on fail-over and with each KeepAlive.
func TestPaperLeaseTimeoutOnlyMovesForward(t *testing.T) {
	l := session.NewLeases()
	for _, step := range []struct {
		what string
		do   func()
		want session.Instant
	}{
		{"creation", func() { l.Start(7, 12*time.Second, at(1)) }, at(13)},
		{"a KeepAlive", func() { l.Grant(7, 12*time.Second, at(8)) }, at(20)},
		{"one whose proof began earlier", func() { l.Grant(7, 12*time.Second, at(7)) }, at(20)},
		{"a shorter lease", func() { l.Grant(7, time.Second, at(9)) }, at(20)},
		{"an absurd length", func() { l.Grant(7, math.MinInt64, at(21)) }, at(21)},
		{"a start over again", func() { l.Start(7, time.Second, at(9)) }, at(21)},
		{"a fail-over to itself", func() { l.Start(7, 60*time.Second, at(22)) }, at(82)},
		{"a length beyond all time", func() { l.Grant(7, math.MaxInt64, at(23)) }, math.MaxInt64},
	} {
		step.do()
		if end, ok := l.End(7); end != step.want || !ok {
			t.Errorf("after %s the lease ends at %v (%v), want %v", step.what, end, ok, step.want)
		}
		if next, ok := l.Next(); next != step.want || !ok {
			t.Errorf("after %s the next lease ends at %v (%v), want %v", step.what, next, ok, step.want)
		}
	}
}

// If a client received an extension after the cell ended its session, it would
// rely on a lock that another holds. So nothing extends an EXPIRING session.
func TestExpiringIsNeverExtended(t *testing.T) {
	l := session.NewLeases()
	l.Start(1, time.Second, at(0))
	l.Start(2, 9*time.Second, at(0))
	tick(l, at(0), at(1))
	if end, ok := l.Stop(2); end != at(9) || !ok {
		t.Errorf("stopped session 2: its promise ends at %v (%v), want 9 s", end, ok)
	}
	for id, end := range map[api.SessionID]session.Instant{1: at(1), 2: at(9)} {
		if number, ok := l.Grant(id, time.Minute, at(1)); ok || number != 0 {
			t.Errorf("EXPIRING session %v was granted %d", id, number)
		}
		l.Start(id, time.Minute, at(1))
		l.Tick(at(5), 4*time.Second, 1) // after a pause, so the others get more time
		if got, ok := l.End(id); got != end || !ok || l.Alive(id) {
			t.Errorf("the promise to EXPIRING session %v ends at %v (%v), want %v", id, got, ok, end)
		}
		if got, ok := l.Stop(id); got != end || !ok {
			t.Errorf("stopped session %v twice: its promise ends at %v (%v), want %v", id, got, ok, end)
		}
	}
	if expired := tick(l, at(5), at(20)); expired != nil {
		t.Errorf("%v expired, but is EXPIRING already", expired)
	}
	l.Remove(1)
	if _, ok := l.End(1); ok || l.Len() != 1 {
		t.Error("session 1 was removed and is still there")
	}
}

// naiveLeases does what Leases does, by full scans.
type naiveLeases struct {
	end     map[api.SessionID]session.Instant
	alive   map[api.SessionID]bool
	unheard map[api.SessionID]bool
	number  uint64
}

func (n *naiveLeases) grant(id api.SessionID, end session.Instant) bool {
	if n.alive[id] {
		n.end[id] = max(n.end[id], end)
		delete(n.unheard, id)
	}
	return n.alive[id]
}

func (n *naiveLeases) byEnd() (ids []api.SessionID) {
	for id := range n.alive {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b api.SessionID) int {
		return cmp.Or(cmp.Compare(n.end[a], n.end[b]), cmp.Compare(a, b))
	})
	return ids
}

func (n *naiveLeases) tick(now session.Instant, forgiven time.Duration, limit int) (expired []api.SessionID) {
	for _, id := range n.byEnd() {
		n.end[id] += session.Instant(forgiven)
		if forgiven == 0 && n.end[id] <= now && len(expired) < limit {
			expired = append(expired, id)
			delete(n.alive, id)
		}
	}
	return expired
}

// TestLeasesAgreeWithTheirNaiveTwin compares every answer over random
// histories.
func TestLeasesAgreeWithTheirNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := session.Instant(rapid.Int64Range(-1e9, 1e9).Draw(t, "origin"))
		l := session.NewLeases()
		twin := &naiveLeases{end: map[api.SessionID]session.Instant{}, alive: map[api.SessionID]bool{}, unheard: map[api.SessionID]bool{}}
		anyID := rapid.Custom(func(t *rapid.T) api.SessionID { return api.SessionID(rapid.IntRange(1, 8).Draw(t, "session")) })
		// Coarse steps, so that ends are often equal.
		length := func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(-1, 12).Draw(t, "length")) * 100e6 }
		proof := func(t *rapid.T) session.Instant {
			return now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "proof")) * 100e6)
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				id, length, from := anyID.Draw(t, "id"), length(t), proof(t)
				l.Start(id, length, from)
				if _, known := twin.end[id]; !known {
					twin.alive[id], twin.end[id] = true, from.Add(max(length, 0))
				}
				twin.grant(id, from.Add(max(length, 0)))
			},
			"inherit": func(t *rapid.T) {
				id, length, from := anyID.Draw(t, "id"), length(t), proof(t)
				if _, known := twin.end[id]; !known {
					l.Inherit(id, length, from)
					twin.alive[id], twin.unheard[id], twin.end[id] = true, true, from.Add(max(length, 0))
				}
			},
			"grant": func(t *rapid.T) {
				id, length, from := anyID.Draw(t, "id"), length(t), proof(t)
				number, ok := l.Grant(id, length, from)
				if ok != twin.grant(id, from.Add(max(length, 0))) || ok && number != twin.number+1 {
					t.Fatalf("session %v was granted %d, %v; the last number was %d", id, number, ok, twin.number)
				}
				twin.number = max(twin.number, number)
			},
			"stop": func(t *rapid.T) {
				id := anyID.Draw(t, "id")
				end, ok := l.Stop(id)
				if want, known := twin.end[id]; end != want || ok != known {
					t.Fatalf("stopped session %v: %v, %v; want %v, %v", id, end, ok, want, known)
				}
				delete(twin.alive, id)
			},
			"remove": func(t *rapid.T) {
				id := anyID.Draw(t, "id")
				l.Remove(id)
				delete(twin.alive, id)
				delete(twin.unheard, id)
				delete(twin.end, id)
			},
			"tick": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "passed")) * 50e6)
				forgiven := time.Duration(max(0, rapid.IntRange(-9, 6).Draw(t, "forgiven"))) * 50e6
				now = now.Add(forgiven)
				limit := rapid.IntRange(-1, 3).Draw(t, "limit")
				expired := l.Tick(now, forgiven, limit)
				if want := twin.tick(now, forgiven, limit); !slices.Equal(expired, want) {
					t.Fatalf("Tick gives %v, want %v", expired, want)
				}
			},
			"": func(t *rapid.T) { twin.compare(t, l) },
		})
	})
}

func (n *naiveLeases) compare(t *rapid.T, l *session.Leases) {
	if l.Len() != len(n.end) || l.CountUnheard() != len(n.unheard) {
		t.Fatalf("%d sessions, %d unheard of; want %d, %d", l.Len(), l.CountUnheard(), len(n.end), len(n.unheard))
	}
	for id := api.SessionID(1); id <= 8; id++ {
		end, ok := l.End(id)
		if want, known := n.end[id]; end != want || ok != known || l.Alive(id) != n.alive[id] || l.Unheard(id) != n.unheard[id] {
			t.Fatalf("session %v: end %v (%v), alive %v, unheard %v; want %v (%v), %v, %v", id, end, ok, l.Alive(id), l.Unheard(id), want, known, n.alive[id], n.unheard[id])
		}
	}
	next, ok := l.Next()
	if byEnd := n.byEnd(); ok != (len(byEnd) > 0) || ok && next != n.end[byEnd[0]] {
		t.Fatalf("Next gives %v, %v with %v alive", next, ok, byEnd)
	}
}

func TestTimetableAgreesWithItsNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table session.Timetable[int]
		twin := map[int]session.Instant{}
		key := rapid.IntRange(0, 9)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, at := key.Draw(t, "key"), session.Instant(rapid.IntRange(-3, 9).Draw(t, "at"))
				table.Put(k, at)
				twin[k] = at
			},
			"drop": func(t *rapid.T) {
				k := key.Draw(t, "key")
				table.Drop(k)
				delete(twin, k)
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "clear") == 0 {
					table.Clear()
					clear(twin)
				}
			},
			"": func(t *rapid.T) {
				next, at, ok := table.Next()
				if ok != (len(twin) > 0) || table.Len() != len(twin) || ok && twin[next] != at {
					t.Fatalf("Next gives %d at %v, %v, of %v", next, at, ok, twin)
				}
				for k := range 10 {
					want, known := twin[k]
					if got, ok := table.At(k); got != want || ok != known {
						t.Fatalf("%d is due at %v, %v; want %v, %v", k, got, ok, want, known)
					}
					if known && want < at {
						t.Fatalf("%d is due at %v, before the first at %v", k, want, at)
					}
				}
			},
		})
	})
}

// Chubby §2.8: leases grow to about 60 s under heavy load, by the documented
// rule; a client that asked for a short lease keeps it.
func TestLengthen(t *testing.T) {
	const rate = 1000
	for _, step := range []struct {
		asked    time.Duration
		sessions int
		want     time.Duration
	}{
		{12 * time.Second, 0, 12 * time.Second},
		{12 * time.Second, 7_000, 12 * time.Second},
		{12 * time.Second, 7_001, 24 * time.Second},
		{12 * time.Second, 14_000, 24 * time.Second},
		{12 * time.Second, 14_001, 36 * time.Second},
		{12 * time.Second, 30_000, 60 * time.Second},
		{12 * time.Second, 1_000_000, 60 * time.Second},
		{30 * time.Second, 7_001, 30 * time.Second},
		{30 * time.Second, 20_000, 36 * time.Second},
		{60 * time.Second, 0, 60 * time.Second},
		{2 * time.Second, 1_000_000, 2 * time.Second},
	} {
		if got := session.Lengthen(step.asked, step.sessions, rate); got != step.want {
			t.Errorf("asked for %v, %d sessions: %v, want %v", step.asked, step.sessions, got, step.want)
		}
	}
	if got := session.Lengthen(api.DefaultLease, 1_000_000, 0); got != api.DefaultLease {
		t.Errorf("without a rate: %v", got)
	}
}

// A session is never granted less than it asked for, nor less when there are
// more sessions. Leases of at least the default length keep to the rate until
// they are the longest.
func TestLengthenIsMonotone(t *testing.T) {
	last := time.Duration(0)
	for n := 0; n < 60_000; n += 100 {
		got := session.Lengthen(api.DefaultLease, n, 500)
		if got < last {
			t.Fatalf("%d sessions: %v, with fewer sessions %v", n, got, last)
		}
		if sent := float64(n) / session.Due(got).Seconds(); got < api.MaxLease && sent > 500 {
			t.Fatalf("%d sessions of %v send %.0f KeepAlives a second", n, got, sent)
		}
		last = got
	}
}
