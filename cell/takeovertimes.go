package cell

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

// takeoverTimes measures this replica's take-overs, by phase.
type takeoverTimes struct {
	clock session.Clock
	wall  func() int64         // for display
	whole prometheus.Histogram // until it served
	parts *prometheus.HistogramVec

	// awaited has the pending phases that end with an event, as bits. Every extension of a lease reads it.
	awaited atomic.Uint32

	mu   sync.Mutex // guards last; nothing else is called under it
	last []takeover // in order of time
}

type takeover struct {
	record api.Takeover // its finished phases; times count from elected

	elected, applied, served session.Instant
}

// maxTakeovers is how many take-overs a replica remembers.
const maxTakeovers = 8

// The phases of a take-over, as values of the label phase. The first three follow each other; the others then
// begin together.
const (
	phaseElection = "election"
	phaseLog      = "log"
	phaseLeases   = "leases"
	phaseFirst    = "first_lease"
	phaseSessions = "sessions"
	phaseCaches   = "caches"
	phaseGrant    = "first_grant"
)

// The bits of takeoverTimes.awaited.
const (
	awaitsFirst uint32 = 1 << iota
	awaitsSessions
	awaitsGrant
)

// maxGrantWait is how long after the beginning of service the first grant still counts. By then all clients
// have returned, or their sessions have ended.
const maxGrantWait = api.MaxLease

func newTakeoverTimes(m meter, clock session.Clock, wall func() int64) *takeoverTimes {
	t := &takeoverTimes{
		clock: clock,
		wall:  wall,
		whole: m.histogram("takeover_seconds", "Time from this replica's election until it served as master.", 0.001),
		parts: m.histograms("takeover_phase_seconds", "Time of the phases of a take-over. election: from the last message of the master before until this replica was elected; log: from then until everything in the log was applied, and the epoch was in it, which proves the election; leases: until every session had its lease anew. Then it serves, and beside each other begin first_lease: until the first lease was extended, if one was before all of these sessions had ended; sessions: until the clients of all sessions had returned, or their sessions had ended; caches: until all clients had dropped what they had cached, or their cache leases were over, for which changes wait; and first_grant: until the first lock was granted, if that was within a minute. These are there only if sessions, or clients with caches, outlived the master before, and election if there was one.",
			prometheus.ExponentialBuckets(0.001, 4, 10), "phase"),
	}
	for _, phase := range []string{phaseElection, phaseLog, phaseLeases, phaseFirst, phaseSessions, phaseCaches, phaseGrant} {
		t.parts.WithLabelValues(phase) // creates it before it has a value
	}
	return t
}

// began records that this replica has applied the log and begun its epoch. vacant is the time from the last
// word of a master to the election (negative: never); sessions counts the sessions taken over.
func (t *takeoverTimes) began(epoch api.Epoch, sessions int, vacant time.Duration, elected session.Instant) {
	now := t.clock()
	t.mu.Lock()
	if len(t.last) == maxTakeovers {
		t.last = slices.Delete(t.last, 0, 1)
	}
	t.last = append(t.last, takeover{
		record:  api.Takeover{Epoch: epoch, ElectedUnix: t.wall() - int64(now.Sub(elected).Seconds()), Sessions: sessions},
		elected: elected, applied: now,
	})
	t.mu.Unlock()
	if vacant >= 0 {
		t.observe(phaseElection, elected.Add(-vacant), elected)
	}
	t.observe(phaseLog, elected, now)
}

// nowServes records that the master of the newest epoch serves. With sessions, it begins the phases that end
// with events.
func (t *takeoverTimes) nowServes() (took time.Duration) {
	now := t.clock()
	t.mu.Lock()
	last := &t.last[len(t.last)-1]
	last.served, took = now, now.Sub(last.elected)
	applied, sessions := last.applied, last.record.Sessions
	t.mu.Unlock()
	t.observe(phaseLeases, applied, now)
	t.whole.Observe(took.Seconds())
	if sessions > 0 {
		t.awaited.Store(awaitsFirst | awaitsSessions | awaitsGrant)
	}
	return took
}

// observe records a phase of the last take-over.
func (t *takeoverTimes) observe(phase string, from, to session.Instant) {
	t.parts.WithLabelValues(phase).Observe(to.Sub(from).Seconds())
	t.mu.Lock()
	defer t.mu.Unlock()
	last := &t.last[len(t.last)-1]
	last.record.Phases = append(last.record.Phases, api.TakeoverPhase{Name: phase, Begin: from.Sub(last.elected), End: to.Sub(last.elected)})
}

func (t *takeoverTimes) ended() { t.awaited.Store(0) }

// leaseExtended records an extended lease, and how many sessions' clients are still missing since the
// take-over.
func (t *takeoverTimes) leaseExtended(unheard int) {
	t.reached(awaitsFirst, phaseFirst)
	t.sessionsLeft(unheard)
}

// sessionsLeft records how many sessions' clients are still missing since the take-over.
func (t *takeoverTimes) sessionsLeft(unheard int) {
	if unheard == 0 {
		t.reached(awaitsSessions, phaseSessions)
		//mutant: /* nothing */ //by TestNoFirstLeaseOfADeadSession of ./cell
		t.awaited.And(^awaitsFirst) // nobody can return any more: the first lease would be a new client's
	}
}

func (t *takeoverTimes) granted() { t.reached(awaitsGrant, phaseGrant) }

// cachesCleared records when, after that time of service, the last client has dropped what an earlier master
// let it cache.
func (t *takeoverTimes) cachesCleared(took time.Duration) {
	now := t.clock()
	t.observe(phaseCaches, now.Add(-took), now)
}

// reached ends a phase if it is pending.
func (t *takeoverTimes) reached(what uint32, phase string) {
	if t.awaited.Load()&what == 0 || t.awaited.And(^what)&what == 0 { // the usual case
		return
	}
	now, served := t.clock(), t.lastServed()
	if what != awaitsGrant || now.Sub(served) <= maxGrantWait {
		t.observe(phase, served, now)
	}
}

func (t *takeoverTimes) lastServed() session.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[len(t.last)-1].served
}

// list returns the last take-overs, the latest first, with its pending phases.
func (t *takeoverTimes) list() []api.Takeover {
	now, awaited := t.clock(), t.awaited.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []api.Takeover
	for i, one := range slices.Backward(t.last) {
		record := one.record
		record.Phases = slices.Clone(record.Phases)
		goesOn := func(phase string) {
			record.Phases = append(record.Phases, api.TakeoverPhase{Name: phase, Begin: one.served.Sub(one.elected), End: now.Sub(one.elected), Unfinished: true})
		}
		if i == len(t.last)-1 && awaited&awaitsFirst != 0 {
			goesOn(phaseFirst)
		}
		if i == len(t.last)-1 && awaited&awaitsSessions != 0 {
			goesOn(phaseSessions)
		}
		slices.SortStableFunc(record.Phases, func(a, b api.TakeoverPhase) int {
			return cmp.Compare(a.End, b.End)
		})
		list = append(list, record)
	}
	return list
}
