package cell

import (
	"strconv"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

func newMetrics(r *Replica) *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newGauges(r.mastership))
	m := meter{promauto.With(registry)}
	m.NewGauge(prometheus.GaugeOpts{
		Namespace: "chubby", Name: "build_info", Help: "1; version is that of this replica, and level the newest feature level that it knows.",
		ConstLabels: prometheus.Labels{"version": Version(), "level": strconv.Itoa(r.cfg.supports)},
	}).Set(1)
	m.gauge("master", "1 while this replica is the master.", func() float64 { return oneIf(r.master.Load() != nil) })
	m.gauge("ready", "1 while this replica serves as the master or knows a master that can, as /readyz says; 0 of one that is up and cut off from the others.", func() float64 { return oneIf(r.Health().Ready) })
	m.counted("log_lines_dropped_total", "Log lines that could not be written as fast as they came.", func() float64 { return float64(r.logs.dropped.Load()) })
	m.counted("audit_errors_total", "Acts of operators that could not be written to the audit log; they are in the replica's log. And how often its file could not be renamed.", func() float64 { return float64(r.metrics.auditErrors.Load()) })
	m.counted("trace_spans_lost_total", "Spans of traces that could not be sent to the collector (trace-endpoint) as fast as they came, or not at all.", r.cfg.Tracing.lost)
	m.gauge("client_connections", "Connections of clients.", func() float64 { return float64(r.ports.conns.Count()) })
	m.gauge("client_held_bytes", "Bytes that are held for calls of clients.", func() float64 { return float64(r.ports.conns.Held()) })
	m.gauge("diverged_replicas", "Replicas known to have applied other entries than this one, or to have another state: 0, or see the log.", func() float64 { return float64(len(r.checks.comparison.Differing())) })
	m.gauge("client_certificate_not_after_timestamp_seconds", "When the certificate that clients are shown ends, in seconds since 1970; 0 without TLS.", func() float64 { return endOf(r.credentials.clients) })
	m.gauge("peer_certificate_not_after_timestamp_seconds", "When the certificate that other replicas are shown ends, in seconds since 1970; 0 without TLS.", func() float64 { return endOf(r.credentials.peers) })
	m.gauge("authority_not_after_timestamp_seconds", "When the last of the authorities ends that tls-ca names, or of those that peer-tls-ca names, if that is sooner, in seconds since 1970; 0 without TLS.", func() float64 {
		return firstOf((*certs.Store).AuthorityEnd, r.credentials.clients, r.credentials.peers)
	})
	m.gauge("revocations_next_update_timestamp_seconds", "When the first of the revocation lists is to be replaced that tls-crl and peer-tls-crl name, in seconds since 1970; 0 without any.", func() float64 {
		return firstOf((*certs.Store).RevocationsDue, r.credentials.clients, r.credentials.peers)
	})
	m.gauge("publish_failures", "How often in succession this master could not have clients find the replicas by the cell's name (dns-server, dns-hook).", func() float64 { return float64(r.publisher.failures.Load()) })
	m.gauge("backup_failures", "How often in succession this master could not take a backup (backup-to).", func() float64 { return float64(r.backups.failures.Load()) })
	m.gauge("backup_timestamp_seconds", "When the last backup in backup-to was begun, as this master knows it, in seconds since 1970; 0 if it is none, or not the master.", func() float64 { return float64(r.backups.last.Load()) })
	m.gauge("drill_timestamp_seconds", "When this replica, as the master, last left the cell without one because an operator asked for that (chubbyctl drill outage, chubbyctl drill failover --hard), in seconds since 1970; 0 if it has not since its start.", func() float64 { return float64(r.outages.last.Load()) })
	m.gauge("disk_free_bytes", "Bytes that are free on the disk of this replica; -1 if that is unknown.", func() float64 { return float64(r.space.Seen()) })
	m.gauge("term", "The Raft term this replica is in.", func() float64 { return float64(r.raft.CurrentTerm()) })
	m.gauge("applied_index", "The last Raft entry applied here.", func() float64 { return float64(r.fsm.State().Applied) })
	m.gauge("sessions", "Sessions of the cell.", func() float64 { return float64(r.fsm.State().Sessions.Len()) })
	m.gauge("nodes", "Nodes of the cell.", func() float64 { return float64(r.fsm.State().Tree.Counts().Nodes) })
	m.gauge("locks_held", "Locks that are held.", func() float64 { return float64(r.fsm.State().Tree.Counts().Locks) })
	m.gauge("contents_used_ratio", "Which part of max-contents-mib of this replica the cell holds: contents (those of access control lists three times), names, and 1 KiB for each node. 1 is all; then the master refuses what makes it more. 0 if there is no such bound.", r.contentsUsed)
	m.gauge("contents_bytes", "Bytes of contents.", func() float64 { return float64(r.fsm.State().Tree.Counts().Bytes) })
	return &metrics{
		registry: registry,
		master:   newMasterMetrics(m, r.cfg.MetricPrefixes, newTakeoverTimes(m, r.clock, r.cfg.Wall)),
		refusals: m.counter("client_connections_refused_total", "Connections of clients that were refused, because there were too many, or too many in a second."),
		shed:     m.counter("client_connections_shed_total", "Connections of clients that were closed, because their calls held too much memory."),
		late:     m.counter("client_calls_refused_total", "Calls of clients that were refused, because their principal or address made too many in a second."),
		calls:    newCallTimes(m),
		appends:  m.histogram("log_append_seconds", "Time to write entries to the Raft log, and to sync it.", 0.00005),
		applies:  m.histogram("apply_seconds", "Time to apply a batch of committed entries.", 0.00001),
		proofs:   m.histogram("leadership_proof_seconds", "Time for which this master asked the other replicas whether it is one still; every read and every lease waits for such a proof.", 0.0001),
		unproven: m.counter("leadership_proofs_failed_total", "Of these, those that failed: the calls that waited are refused."),
		sizes:    m.histogram("entry_bytes", "Bytes of an entry that this master proposed.", 64),
	}
}

func oneIf(so bool) float64 {
	if so {
		return 1
	}
	return 0
}

func (r *Replica) contentsUsed() float64 {
	if r.cfg.MaxContentsMiB == 0 {
		return 0
	}
	return float64(r.fsm.State().Tree.Counts().Weight()) / float64(int64(r.cfg.MaxContentsMiB)<<20)
}

// gauges is a prometheus.Collector of values read together: what waits in the master, and how far the other
// replicas are.
type gauges struct {
	replica *mastership
	backlog []backlogGauge
	peers   *prometheus.Desc
	quotas  *prometheus.Desc

	mu     sync.Mutex // guards what follows; the master's mutex is taken under it
	shares map[string]float64
	of     *master.Master  // the master of the shares
	until  session.Instant // when to read them again
}

// quotaInterval is how long the shares of quotas stay valid. Reading all principals takes longer than the rest
// of the page, and everybody on the port may ask.
const quotaInterval = 10 * time.Second

type backlogGauge struct {
	desc *prometheus.Desc
	of   func(api.Backlog) int
}

func newGauges(of *mastership) *gauges {
	one := func(name, help string, of func(api.Backlog) int) backlogGauge {
		return backlogGauge{desc: prometheus.NewDesc("chubby_"+name, help+" 0 if this replica is not the master.", nil, nil), of: of}
	}
	return &gauges{
		replica: of,
		backlog: []backlogGauge{
			one("lock_requests_waiting", "Requests that wait for locks.", func(b api.Backlog) int { return b.Waiters }),
			one("changes_waiting", "Names whose changes wait for clients to drop what they have cached.", func(b api.Backlog) int { return b.Changes }),
			one("lock_delays", "Locks that nobody gets for now, because their last holder did not release them.", func(b api.Backlog) int { return b.Delays }),
			one("handles_open", "Handles that clients have open.", func(b api.Backlog) int { return b.Handles }),
			one("events_waiting_bytes", "Bytes of events that clients have not acknowledged.", func(b api.Backlog) int { return b.Mail }),
			one("cached_copies_bytes", "Bytes in which the master remembers what clients may have cached.", func(b api.Backlog) int { return b.Copies }),
			one("commands_waiting", "Commands that wait to be put into the Raft log.", func(b api.Backlog) int { return b.Proposals }),
		},
		peers:  prometheus.NewDesc("chubby_peer_held_index", "The last Raft entry up to which another replica is known to hold the log. 0 if this one does not know.", []string{"peer"}, nil),
		quotas: prometheus.NewDesc("chubby_quota_used_ratio", "Which part of a quota the principal uses that uses most of its own, by what the quota is of; 1 is all. At most ten seconds old. 0 if this replica is not the master.", []string{"kind"}, nil),
	}
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, one := range g.backlog {
		to <- one.desc
	}
	to <- g.peers
	to <- g.quotas
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	var now api.Backlog
	if m := g.replica.master.Load(); m != nil {
		now = m.Backlog()
	}
	for _, one := range g.backlog {
		to <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, float64(one.of(now)))
	}
	for kind, share := range g.quotaShares() {
		to <- prometheus.MustNewConstMetric(g.quotas, prometheus.GaugeValue, share, kind)
	}
	for _, s := range g.replica.servers() {
		if id := string(s.ID); id != g.replica.cfg.ID {
			to <- prometheus.MustNewConstMetric(g.peers, prometheus.GaugeValue, float64(g.replica.passport.HeldBy(id)), id)
		}
	}
}

// quotaShares returns the shares of the quotas, at most quotaInterval old.
func (g *gauges) quotaShares() map[string]float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.replica.master.Load()
	switch now := g.replica.clock(); {
	case m == nil:
		g.shares, g.of = map[string]float64{"nodes": 0, "bytes": 0, "sessions": 0, "handles": 0, "waiters": 0}, nil
	case g.of != m || now >= g.until:
		g.shares, g.of, g.until = m.QuotaShares(), m, now.Add(quotaInterval)
	}
	return g.shares
}
