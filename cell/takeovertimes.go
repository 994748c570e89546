package cell

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

// takeoverTimes is how long this replica needed to become the master, and where the time went.
type takeoverTimes struct {
	clock session.Clock
	wall  func() int64         // for display
	whole prometheus.Histogram // until it served
	parts *prometheus.HistogramVec

	// awaited says which phases go on that have no end before something happens, as bits. Every extension of a lease reads it.
	awaited atomic.Uint32

	mu   sync.Mutex // guards last; nothing else is called while it is held
	last []takeover // the latest last
}

// takeover is one take-over of this replica.
type takeover struct {
	record wire.Takeover // its phases that have ended; they count from elected

	elected, applied, served session.Instant
}

// maxTakeovers is how many take-overs a replica remembers.
const maxTakeovers = 8

// The phases of a takeover, as the label phase has them. The first three come one after the other; the others begin then,
// beside each other.
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

// maxGrantWait is how long after the beginning of its service a master's first grant is part of the take-over: until then all clients have
// returned, or their sessions have ended.
const maxGrantWait = api.MaxLease

func newTakeoverTimes(clock session.Clock, wall func() int64) *takeoverTimes {
	t := &takeoverTimes{
		clock: clock,
		wall:  wall,
		whole: histogram("takeover_seconds", "Time from this replica's election until it served as master.", 0.001),
		parts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "chubby", Name: "takeover_phase_seconds",
			Help:    "Time of the phases of a take-over. election: from the last message of the master before until this replica was elected; log: from then until everything in the log was applied, and the epoch was in it, which proves the election; leases: until every session had its lease anew. Then it serves, and beside each other begin first_lease: until the first lease was extended, if one was before all of these sessions had ended; sessions: until the clients of all sessions had returned, or their sessions had ended; caches: until all clients had dropped what they had cached, or their cache leases were over, for which changes wait; and first_grant: until the first lock was granted, if that was within a minute. These are there only if sessions, or clients with caches, outlived the master before, and election if there was one.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"phase"}),
	}
	for _, phase := range []string{phaseElection, phaseLog, phaseLeases, phaseFirst, phaseSessions, phaseCaches, phaseGrant} {
		t.parts.WithLabelValues(phase) // it is there before it has a value
	}
	return t
}

// began notes that a replica has everything in the log, with an epoch of its own: it was elected at that moment, so long after it had last
// heard from a master (negative: it never did), whom so many sessions have outlived.
func (t *takeoverTimes) began(epoch api.Epoch, sessions int, vacant time.Duration, elected session.Instant) {
	now := t.clock()
	t.mu.Lock()
	if len(t.last) == maxTakeovers {
		t.last = slices.Delete(t.last, 0, 1)
	}
	t.last = append(t.last, takeover{
		record:  wire.Takeover{Epoch: epoch, ElectedUnix: t.wall() - int64(now.Sub(elected).Seconds()), Sessions: sessions},
		elected: elected, applied: now,
	})
	t.mu.Unlock()
	if vacant >= 0 {
		t.observe(phaseElection, elected.Add(-vacant), elected)
	}
	t.observe(phaseLog, elected, now)
}

// nowServes notes that the master of the epoch that began last serves. What ends with the first lease and so on is awaited if there are
// sessions.
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

// observe notes a phase of the last take-over.
func (t *takeoverTimes) observe(phase string, from, to session.Instant) {
	t.parts.WithLabelValues(phase).Observe(to.Sub(from).Seconds())
	t.mu.Lock()
	defer t.mu.Unlock()
	last := &t.last[len(t.last)-1]
	last.record.Phases = append(last.record.Phases, wire.TakeoverPhase{Name: phase, Begin: from.Sub(last.elected), End: to.Sub(last.elected)})
}

// ended notes that the master does not serve any more.
func (t *takeoverTimes) ended() { t.awaited.Store(0) }

// leaseExtended notes that a master has extended a lease, and how many sessions there are whose clients have not returned since the
// take-over.
func (t *takeoverTimes) leaseExtended(unheard int) {
	t.reached(awaitsFirst, phaseFirst)
	t.sessionsLeft(unheard)
}

// sessionsLeft notes how many sessions there are whose clients have not returned since the take-over.
func (t *takeoverTimes) sessionsLeft(unheard int) {
	if unheard == 0 {
		t.reached(awaitsSessions, phaseSessions)
		//mutant: /* nothing */ //by TestNoFirstLeaseOfADeadSession of ./cell
		t.awaited.And(^awaitsFirst) // nobody is left who could return: the first lease would be that of a client that is new
	}
}

// granted notes that a lock was granted.
func (t *takeoverTimes) granted() { t.reached(awaitsGrant, phaseGrant) }

// cachesCleared notes that the last client has dropped what an earlier master let it cache, so long after the master began to serve.
func (t *takeoverTimes) cachesCleared(took time.Duration) {
	now := t.clock()
	t.observe(phaseCaches, now.Add(-took), now)
}

// reached ends a phase, if it is awaited.
func (t *takeoverTimes) reached(what uint32, phase string) {
	if t.awaited.Load()&what == 0 || t.awaited.And(^what)&what == 0 { // mostly
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

// list returns the last take-overs, the latest first, with what of the latest goes on.
func (t *takeoverTimes) list() []wire.Takeover {
	now, awaited := t.clock(), t.awaited.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []wire.Takeover
	for i, one := range slices.Backward(t.last) {
		record := one.record
		record.Phases = slices.Clone(record.Phases)
		goesOn := func(phase string) {
			record.Phases = append(record.Phases, wire.TakeoverPhase{Name: phase, Begin: one.served.Sub(one.elected), End: now.Sub(one.elected), Unfinished: true})
		}
		if i == len(t.last)-1 && awaited&awaitsFirst != 0 {
			goesOn(phaseFirst)
		}
		if i == len(t.last)-1 && awaited&awaitsSessions != 0 {
			goesOn(phaseSessions)
		}
		slices.SortStableFunc(record.Phases, func(a, b wire.TakeoverPhase) int {
			return cmp.Compare(a.End, b.End)
		})
		list = append(list, record)
	}
	return list
}
