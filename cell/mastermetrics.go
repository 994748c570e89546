package cell

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// masterMetrics count for all masters of a replica, one after the other; see master.Metrics.
type masterMetrics struct {
	commands prometheus.Counter
	entries  prometheus.Counter
	failures prometheus.Counter
	begun    prometheus.Counter
	endings  *prometheus.CounterVec
	ended    atomic.Uint64 // of all reasons
	renewals prometheus.Counter
	grants   prometheus.Counter
	locks    *lockTimes

	takeovers     *takeoverTimes
	invalidations prometheus.Counter
	eventsDropped prometheus.Counter
	changeWaits   prometheus.Histogram
	mutexHolds    prometheus.Histogram
}

func newMasterMetrics(m meter, prefixes []string, takeovers *takeoverTimes) *masterMetrics {
	return &masterMetrics{
		commands: m.counter("commands_total", "Commands proposed by this replica as master."),
		entries:  m.counter("entries_total", "Raft entries those commands were put into."),
		failures: m.counter("entries_failed_total", "Entries that were not, or perhaps not, committed."),
		begun:    m.counter("sessions_begun_total", "Sessions created."),
		endings: m.NewCounterVec(prometheus.CounterOpts{
			Namespace: "chubby", Name: "sessions_ended_total", Help: "Sessions ended, by reason.",
		}, []string{"reason"}),
		renewals: m.counter("leases_extended_total", "Session leases extended."),
		grants:   m.counter("locks_granted_total", "Locks granted to waiting requests."),
		locks:    newLockTimes(m, prefixes),

		takeovers:     takeovers,
		invalidations: m.counter("invalidations_total", "Copies in clients' caches that had to be dropped for a change."),
		eventsDropped: m.counter("events_dropped_total", "Events that clients were not sent, because too many waited: they were told to look again."),
		changeWaits:   m.histogram("change_wait_seconds", "Time that changes waited for clients to drop what they had cached; those that waited for nobody are not counted.", 0.0005),
		mutexHolds: m.NewHistogram(prometheus.HistogramOpts{
			Namespace: "chubby", Name: "master_mutex_hold_seconds", Help: "Time for which the master's one mutex was held at a time; one hold in eight is measured. All calls wait for it; above 5 ms is a bug, or a machine that is short of processors.",
			Buckets: []float64{5e-6, 25e-6, 100e-6, 500e-6, 1e-3, 2e-3, 5e-3, 20e-3, 100e-3, 500e-3},
		}),
	}
}

func (m *masterMetrics) counts(into map[string]uint64) {
	for name, c := range map[string]prometheus.Counter{
		"commands": m.commands, "entries": m.entries, "grants": m.grants, "leases": m.renewals,
		"sessions-begun": m.begun, "invalidations": m.invalidations, "events-dropped": m.eventsDropped,
	} {
		into[name] = count(c)
	}
	into["sessions-ended"] = m.ended.Load()
}

// count returns the value of a counter, or the number of samples of a histogram.
func count(c prometheus.Metric) uint64 {
	var now dto.Metric
	if err := c.Write(&now); err != nil {
		return 0 // no metric of ours fails
	}
	if h := now.GetHistogram(); h != nil {
		return h.GetSampleCount()
	}
	return uint64(now.GetCounter().GetValue())
}

func (m *masterMetrics) Proposed(commands int, err error) {
	m.commands.Add(float64(commands))
	m.entries.Inc()
	if err != nil {
		m.failures.Inc()
	}
}

func (m *masterMetrics) SessionBegun() { m.begun.Inc() }
func (m *masterMetrics) SessionEnded(why api.EndReason, unheard int) {
	m.endings.WithLabelValues(why.String()).Inc()
	m.ended.Add(1)
	m.takeovers.sessionsLeft(unheard)
}
func (m *masterMetrics) LeaseExtended(unheard int) {
	m.renewals.Inc()
	m.takeovers.leaseExtended(unheard)
}

func (m *masterMetrics) TakeoverCleared(d time.Duration) { m.takeovers.cachesCleared(d) }

func (m *masterMetrics) ChangeWaited(d time.Duration) { m.changeWaits.Observe(d.Seconds()) }
func (m *masterMetrics) Invalidated()                 { m.invalidations.Inc() }
func (m *masterMetrics) EventDropped()                { m.eventsDropped.Inc() }
func (m *masterMetrics) MutexHeld(d time.Duration)    { m.mutexHolds.Observe(d.Seconds()) }

func (m *masterMetrics) TurnEnded(name api.Name, held time.Duration) { m.locks.held(name, held) }

func (m *masterMetrics) LockGranted(name api.Name, wait time.Duration, trace string) {
	m.grants.Inc()
	m.takeovers.granted()
	m.locks.waited(name, wait, trace)
}

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
		//mutant: /* nothing */ //by TestTakeoversAreRemembered of ./cell
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

// MaxMetricPrefixes is the maximum of Config.MetricPrefixes: each has its own metrics.
const MaxMetricPrefixes = 32

// lockTimes measures how long locks are waited for and held. Locks below configured paths count apart, all
// others together, which limits the number of metrics.
type lockTimes struct {
	waits, holds *prometheus.HistogramVec
	prefixes     []prefixTimes // the longest first
	rest         prefixTimes
}

type prefixTimes struct {
	name         api.Name
	waits, holds prometheus.Observer
}

func newLockTimes(m meter, prefixes []string) *lockTimes {
	vec := func(name, help string) *prometheus.HistogramVec {
		const apart = " Those at and below a path of metric-prefixes are counted apart; prefix is empty for all others."
		return m.histograms(name, help+apart, prometheus.ExponentialBuckets(0.0005, 4, 12), "prefix") // up to half an hour
	}
	l := &lockTimes{
		waits: vec("lock_wait_seconds", "Time from Acquire to its grant, of those that had to wait in the queue, as far as they waited for this master."),
		holds: vec("lock_hold_seconds", "Time from when a lock that was free, or was handed over, was granted until nobody had it, or it was handed over again. Left out are locks that a client keeps while it does not use them, what began before this replica became the master, and, in a cell with more than 4096 locks in use, those that were granted longest ago."),
	}
	one := func(name api.Name, prefix string) prefixTimes {
		return prefixTimes{name: name, waits: l.waits.WithLabelValues(prefix), holds: l.holds.WithLabelValues(prefix)}
	}
	l.rest = one("", "")
	for _, text := range prefixes {
		if path, err := api.ParsePath(text); err == nil {
			l.prefixes = append(l.prefixes, one(path.Name(), text))
		}
	}
	slices.SortStableFunc(l.prefixes, func(a, b prefixTimes) int { return cmp.Compare(len(b.name), len(a.name)) })
	return l
}

func (l *lockTimes) of(name api.Name) prefixTimes {
	for _, p := range l.prefixes {
		if rest, below := strings.CutPrefix(string(name), string(p.name)); below && (rest == "" || rest[0] == '/') {
			return p
		}
	}
	return l.rest
}

func (l *lockTimes) waited(name api.Name, d time.Duration, trace string) {
	observe(l.of(name).waits, d, trace)
}

func (l *lockTimes) held(name api.Name, d time.Duration) { l.of(name).holds.Observe(d.Seconds()) }
