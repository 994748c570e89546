package cell

import (
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// A replica remembers its last take-overs, the latest first; of that alone something may go on, until the master is deposed.
func TestTakeoversAreRemembered(t *testing.T) {
	now := session.Instant(time.Hour)
	times := newTakeoverTimes(func() session.Instant { return now }, func() int64 { return 1_000_000 })
	pass := func(d time.Duration) { now = now.Add(d) }
	take := func(epoch api.Epoch, sessions int, vacant time.Duration) {
		elected := now
		pass(10 * time.Millisecond)
		times.began(epoch, sessions, vacant, elected)
		pass(time.Millisecond)
		times.nowServes()
	}
	phases := func(i int) (names []string) {
		for _, p := range times.list()[i].Phases {
			name := p.Name
			if p.Unfinished {
				name += " goes on"
			}
			names = append(names, name)
		}
		return names
	}
	expect := func(i int, want ...string) {
		t.Helper()
		if got := phases(i); !slices.Equal(got, want) {
			t.Errorf("the phases of take-over %d from the end are %q, want %q", i, got, want)
		}
	}
	take(1, 0, -1)
	times.leaseExtended(0) // of a session that came later
	times.granted()
	expect(0, phaseLog, phaseLeases)
	times.ended()
	for epoch := range api.Epoch(12) {
		take(10+epoch, 2, time.Second)
		expect(0, phaseElection, phaseLog, phaseLeases, phaseFirst+" goes on", phaseSessions+" goes on")
		pass(time.Second)
		times.leaseExtended(1)
		expect(0, phaseElection, phaseLog, phaseLeases, phaseFirst, phaseSessions+" goes on")
		times.ended()
	}
	take(99, 1, 0)
	pass(5 * time.Second)
	times.leaseExtended(0)
	pass(maxGrantWait)
	times.granted()
	list := times.list()
	if len(list) != maxTakeovers || list[0].Epoch != 99 || list[1].Epoch != 21 || list[0].Sessions != 1 || list[0].ElectedUnix != 1_000_000 {
		t.Errorf("remembered are %+v", list)
	}
	expect(0, phaseElection, phaseLog, phaseLeases, phaseFirst, phaseSessions)
	expect(1, phaseElection, phaseLog, phaseLeases, phaseFirst)
	if last := list[0].Phases[4]; last.Begin != 11*time.Millisecond || last.End != 11*time.Millisecond+5*time.Second {
		t.Errorf("the sessions were back from %v to %v", last.Begin, last.End)
	}
	take(100, 1, 0)
	pass(20 * time.Second)
	times.sessionsLeft(0) // the only one has ended: nobody is waited for any more
	expect(0, phaseElection, phaseLog, phaseLeases, phaseSessions)
	pass(time.Hour)
	times.leaseExtended(0) // of a client that is new
	expect(0, phaseElection, phaseLog, phaseLeases, phaseSessions)
	if first := list[1].Phases[0]; first.Begin != -time.Second || first.End != 0 {
		t.Errorf("the election was from %v to %v", first.Begin, first.End)
	}
}
