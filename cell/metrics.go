package cell

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics is what a replica counts. The registry is its own, so that several
// replicas live in one process.
type metrics struct {
	registry  *prometheus.Registry
	commands  prometheus.Counter
	entries   prometheus.Counter
	failures  prometheus.Counter
	begun     prometheus.Counter
	endings   *prometheus.CounterVec
	renewals  prometheus.Counter
	grants    prometheus.Counter
	lockWaits prometheus.Histogram

	invalidations prometheus.Counter
	eventsDropped prometheus.Counter
	refusals      prometheus.Counter
	shed          prometheus.Counter
	changeWaits   prometheus.Histogram
	mutexHolds    prometheus.Histogram
}

func newMetrics(r *Replica) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "chubby", Name: name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		commands: counter("commands_total", "Commands proposed by this replica as master."),
		entries:  counter("entries_total", "Raft entries those commands were put into."),
		failures: counter("entries_failed_total", "Entries that were not, or perhaps not, committed."),
		begun:    counter("sessions_begun_total", "Sessions created."),
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "chubby", Name: "sessions_ended_total", Help: "Sessions ended, by reason.",
		}, []string{"reason"}),
		renewals: counter("leases_extended_total", "Session leases extended."),
		grants:   counter("locks_granted_total", "Locks granted to waiting requests."),
		lockWaits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "chubby", Name: "lock_wait_seconds", Help: "Time from Acquire to its grant.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}),
	}
	m.invalidations = counter("invalidations_total", "Copies in clients' caches that had to be dropped for a change.")
	m.eventsDropped = counter("events_dropped_total", "Events that clients were not sent, because too many waited: they were told to look again.")
	m.refusals = counter("client_connections_refused_total", "Connections of clients that were refused, because there were too many.")
	m.shed = counter("client_connections_shed_total", "Connections of clients that were closed, because their calls held too much memory.")
	m.changeWaits = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "chubby", Name: "change_wait_seconds", Help: "Time that changes waited for clients to drop what they had cached; those that waited for nobody are not counted.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
	})
	m.mutexHolds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "chubby", Name: "master_mutex_hold_seconds", Help: "Time for which the master's one mutex was held at a time. All calls wait for it; above 5 ms is a bug, or a machine that is short of processors.",
		Buckets: []float64{5e-6, 25e-6, 100e-6, 500e-6, 1e-3, 2e-3, 5e-3, 25e-3, 100e-3, 500e-3},
	})
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "chubby", Name: name, Help: help}, read)
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.commands, m.entries, m.failures, m.begun, m.endings, m.renewals, m.grants, m.lockWaits, m.invalidations, m.eventsDropped, m.refusals, m.shed, m.changeWaits, m.mutexHolds,
		gauge("master", "1 while this replica is the master.", func() float64 {
			if r.master.Load() != nil {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "chubby", Name: "log_lines_dropped_total", Help: "Log lines that could not be written as fast as they came.",
		}, func() float64 { return float64(r.logs.dropped.Load()) }),
		gauge("client_connections", "Connections of clients.", func() float64 { return float64(r.conns.count()) }),
		gauge("client_held_bytes", "Bytes that are held for calls of clients.", func() float64 { return float64(r.conns.bytes.Load()) }),
		gauge("diverged_replicas", "Replicas known to have applied other entries than this one: 0, or see the log.", func() float64 { return float64(r.comparison.count()) }),
		gauge("disk_free_bytes", "Bytes that are free on the disk of this replica; -1 if that is unknown.", func() float64 { return float64(r.free.Load()) }),
		gauge("term", "The Raft term this replica is in.", func() float64 { return float64(r.raft.CurrentTerm()) }),
		gauge("applied_index", "The last Raft entry applied here.", func() float64 { return float64(r.fsm.State().Applied) }),
		gauge("sessions", "Sessions of the cell.", func() float64 { return float64(r.fsm.State().Sessions.Len()) }),
		gauge("nodes", "Nodes of the cell.", func() float64 { return float64(r.fsm.State().Tree.Counts().Nodes) }),
		gauge("locks_held", "Locks that are held.", func() float64 { return float64(r.fsm.State().Tree.Counts().Locks) }),
		gauge("contents_bytes", "Bytes of contents.", func() float64 { return float64(r.fsm.State().Tree.Counts().Bytes) }),
	)
	return m
}

func (m *metrics) proposed(commands int, err error) {
	m.commands.Add(float64(commands))
	m.entries.Inc()
	if err != nil {
		m.failures.Inc()
	}
}

func (m *metrics) held(d time.Duration)    { m.mutexHolds.Observe(d.Seconds()) }
func (m *metrics) created()                { m.begun.Inc() }
func (m *metrics) ended(why api.EndReason) { m.endings.WithLabelValues(why.String()).Inc() }
func (m *metrics) extended()               { m.renewals.Inc() }
func (m *metrics) granted(wait time.Duration) {
	m.grants.Inc()
	m.lockWaits.Observe(wait.Seconds())
}
