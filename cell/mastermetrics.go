package cell

import (
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
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

func (m *masterMetrics) LockGranted(name api.Name, wait time.Duration, trace steps.Trace) {
	m.grants.Inc()
	m.takeovers.granted()
	id := ""
	if trace != nil {
		id = trace.ID()
	}
	m.locks.waited(name, wait, id)
}
