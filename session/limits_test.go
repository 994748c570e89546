package session_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// What is exactly at a limit is allowed, whether a client asks for it or a snapshot has it; one more is not.
func TestLimitsAreAllowed(t *testing.T) {
	last := session.Mutation{Session: 1, Number: 1, HighestIssued: api.MaxGeneration, Outstanding: numbers{1}}
	if err := last.Validate(); err != nil {
		t.Errorf("the last number: %v", err)
	}
	full := make([]session.Request[string], api.MaxOutstanding)
	for i := range full {
		full[i].Number = api.RequestNumber(i + 1)
	}
	s := session.Session[string]{ID: 1, Lease: api.MaxLease, HighestIssued: api.MaxGeneration, Open: full}
	table := newTable(t)
	table.Put(&s)
	mustCheck(t, table)
	s.Open = append(slices.Clone(full), session.Request[string]{Number: api.MaxOutstanding + 1})
	table.Put(&s)
	if err := table.Check(); !errors.Is(err, api.Corrupt) {
		t.Errorf("one open request too many: %v, want Corrupt", err)
	}
}

// A client that asks for more than the longest lease gets the longest.
func TestLengthenStopsAtTheLongest(t *testing.T) {
	if got := session.Lengthen(2*api.MaxLease, 1, 1); got != api.MaxLease {
		t.Errorf("Lengthen returns %v, want %v", got, api.MaxLease)
	}
}

// A cache lease is never longer than api.CacheLease, and never ends before it was asked for.
func TestCacheLeaseHasLimits(t *testing.T) {
	sent := at(100)
	whole := session.CacheLeaseEnd(sent, api.CacheLease)
	if left := whole.Sub(sent); left >= api.CacheLease || left < api.CacheLease*98/100 {
		t.Errorf("a cache lease of %v may be used for %v, want a little less", api.CacheLease, left)
	}
	for lease, want := range map[time.Duration]session.Instant{0: sent, -time.Hour: sent, time.Hour: whole} {
		if got := session.CacheLeaseEnd(sent, lease); got != want {
			t.Errorf("a cache lease of %v ends after %v, want %v", lease, got.Sub(sent), want.Sub(sent))
		}
	}
	if half := session.CacheLeaseEnd(sent, api.CacheLease/2); half >= whole || half <= sent {
		t.Errorf("half a cache lease ends after %v", half.Sub(sent))
	}
}

// A promise that repeats what a client has is numbered, moves no end, and is given only while something is left.
func TestPromise(t *testing.T) {
	l := session.NewLeases()
	l.Start(1, 10*time.Second, at(0))
	for i, test := range []struct {
		limit time.Duration
		from  session.Instant
		left  time.Duration
	}{
		{time.Minute, at(4), 6 * time.Second},
		{2 * time.Second, at(4), 2 * time.Second},
		{time.Minute, at(10).Add(-1), 1},
		{time.Minute, at(10), 0},
	} {
		number, left, ok := l.Promise(1, test.limit, test.from)
		if want := test.left > 0; ok != want || left != test.left || want && number != uint64(i+1) {
			t.Errorf("Promise at %v: number %d, %v left, %v; want %v", test.from, number, left, ok, test.left)
		}
	}
	if end, _ := l.End(1); end != at(10) {
		t.Errorf("the lease ends at %v, want 10 s", end)
	}
	if _, _, ok := l.Promise(2, time.Minute, at(0)); ok {
		t.Error("a promise for an unknown session")
	}
	tick(l, at(9), at(11))
	if _, _, ok := l.Promise(1, time.Minute, at(4)); ok {
		t.Error("a promise for a session that has expired")
	}
	if number, ok := l.Grant(1, time.Minute, at(4)); ok {
		t.Errorf("grant %d for a session that has expired", number)
	}
}

// Leases whose ends a pause moves to the end of time are still taken in the order of their sessions.
func TestPauseAtTheEndOfTime(t *testing.T) {
	l := session.NewLeases()
	l.Start(2, 0, math.MaxInt64-20)
	l.Start(3, 0, math.MaxInt64-15)
	l.Start(1, 0, math.MaxInt64-10)
	if expired := l.Tick(0, 30, math.MaxInt); len(expired) > 0 {
		t.Errorf("a pause has ended sessions %v", expired)
	}
	if expired := l.Tick(math.MaxInt64, 0, math.MaxInt); !slices.Equal(expired, []api.SessionID{1, 2, 3}) {
		t.Errorf("sessions %v expired, want 1, 2, 3", expired)
	}
}

// However long a master has run without a pause, it forgives no more than MaxPatience of a time in which it is always late.
func TestPatienceIsNotSavedUp(t *testing.T) {
	p := session.NewPauses(at(0))
	now, forgiven := at(0), time.Duration(0)
	for now < at(3600) {
		now = now.Add(session.MaxTick)
		p.Look(now)
	}
	for range 1000 {
		now = now.Add(4 * session.MaxTick)
		p.Look(now)
		forgiven += p.Take()
	}
	if forgiven != session.MaxPatience {
		t.Errorf("%v was forgiven, want %v", forgiven, session.MaxPatience)
	}
}

// A number is finished once the client has declared a later one without it, and not before it was issued.
func TestNumbersToComeAreNotFinished(t *testing.T) {
	var d session.Declared
	d.Record(session.Mutation{Session: 1, Number: 4, HighestIssued: 5, Outstanding: numbers{3, 4}})
	for number, want := range map[api.RequestNumber]bool{1: true, 3: false, 4: false, 5: true, 6: false, 99: false} {
		if got := d.Finished(number); got != want {
			t.Errorf("request %d is finished: %v, want %v", number, got, want)
		}
	}
}

// What each look finds is forgiven once, when somebody takes it: nothing of looks that are not late, and all of one that is.
func TestLooks(t *testing.T) {
	for name, test := range map[string]struct {
		looks []float64
		want  time.Duration
	}{
		"after exactly MaxTick":              {[]float64{0.25}, 0},
		"late":                               {[]float64{0.25, 10.25}, 10 * time.Second},
		"several before somebody takes them": {[]float64{1, 1.1, 3, 3.2}, 2900 * time.Millisecond},
		"a clock that goes back":             {[]float64{0.25, 0}, 0},
		"late after a clock was set back":    {[]float64{-3600, -3590}, 10 * time.Second},
		"an hour, however often":             {[]float64{3600, 7200, 10800}, 3 * time.Hour},
	} {
		p := session.NewPauses(at(0))
		for _, now := range test.looks {
			p.Look(at(now))
		}
		if forgiven, again := p.Take(), p.Take(); forgiven != test.want || again != 0 {
			t.Errorf("%s: %v forgiven, and then %v; want %v", name, forgiven, again, test.want)
		}
	}
}

// A process that is always late is forgiven a limited time.
func TestPatienceEnds(t *testing.T) {
	p := session.NewPauses(at(0))
	now, forgiven := at(0), time.Duration(0)
	for range 2000 {
		now = now.Add(2 * session.MaxTick)
		p.Look(now)
		forgiven += p.Take()
	}
	if forgiven != session.MaxPatience {
		t.Errorf("%v was forgiven, want %v", forgiven, session.MaxPatience)
	}
}

// Time without pauses restores the budget.
func TestPatienceIsEarnedBack(t *testing.T) {
	p := session.NewPauses(at(0))
	now := at(0).Add(session.MaxPatience)
	p.Look(now)
	for range 8 {
		now = now.Add(session.MaxTick / 2)
		p.Look(now)
	}
	p.Take()
	p.Look(now.Add(session.MaxPatience))
	if forgiven := p.Take(); forgiven != 4*session.MaxTick {
		t.Errorf("%v was forgiven after %v without pauses", forgiven, 4*session.MaxTick)
	}
}

// TestPausesAreBounded compares what is forgiven with the promise: all of long pauses, and of the others MaxPatience and what
// was restored; and never more than there was.
func TestPausesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := session.Instant(rapid.Int64Range(-1e9, 1e9).Draw(t, "origin"))
		p := session.NewPauses(now)
		var long, short, ran, forgiven time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			gap := time.Duration(rapid.Int64Range(0, int64(2*session.MaxTick)).Draw(t, "gap"))
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				gap *= 200
			case 1:
				gap += session.MaxPatience
			}
			switch now = now.Add(gap); {
			case gap > session.MaxPatience:
				long += gap
			case gap > session.MaxTick:
				short += gap
			default:
				ran += gap
			}
			p.Look(now)
			if rapid.Bool().Draw(t, "take") {
				forgiven += p.Take()
			}
		}
		forgiven += p.Take()
		if least, most := long+min(short, session.MaxPatience), long+min(short, session.MaxPatience+ran); forgiven < least || forgiven > most {
			t.Fatalf("%v was forgiven, want %v to %v", forgiven, least, most)
		}
	})
}
