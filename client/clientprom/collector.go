package clientprom

import (
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Metrics)(nil)

// reading is one metric that is read when metrics are asked for.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(all totals, now present) float64
}

// readings are all of them but those with labels, and the lease.
func readings() []reading {
	total := func(name, help string, of func(totals) uint64) reading {
		return reading{describe(name, help), prometheus.CounterValue, func(all totals, _ present) float64 { return float64(of(all)) }}
	}
	gauge := func(name, help string, of func(present) int) reading {
		return reading{describe(name, help), prometheus.GaugeValue, func(_ totals, now present) float64 { return float64(of(now)) }}
	}
	return []reading{
		total("sessions_opened_total", "Sessions opened.", func(t totals) uint64 { return t.opened }),
		total("sessions_lost_total", "Sessions that ended otherwise than by Close, and all that depended on them.", func(t totals) uint64 { return t.lost }),
		total("jeopardies_total", "Times that the lease of a session ran out by the local clock.", func(t totals) uint64 { return t.stats.Jeopardies }),
		total("rescues_total", "Times that a session became safe again after its lease had run out.", func(t totals) uint64 { return t.stats.Rescues }),
		total("failovers_total", "Masters after the first, as each session has seen them.", func(t totals) uint64 { return t.stats.FailOvers }),
		total("keepalives_total", "KeepAlives sent.", func(t totals) uint64 { return t.stats.KeepAlives }),
		total("keepalives_failed_total", "KeepAlives that were refused, or not answered in time.", func(t totals) uint64 { return t.stats.KeepAlivesFailed }),
		total("attempts_total", "Times that a call was sent to a replica, without KeepAlives and calls that need no session; more than there are calls if some had to be repeated.", func(t totals) uint64 { return t.stats.Attempts }),
		total("cache_hits_total", "Reads and opens that a cache answered.", func(t totals) uint64 { return t.stats.Cache.Hits }),
		total("cache_misses_total", "Reads and opens that asked the cell, of sessions that cache.", func(t totals) uint64 { return t.stats.Cache.Misses }),
		total("cache_invalidations_total", "Names that the cell had the caches drop.", func(t totals) uint64 { return t.stats.Cache.Invalidations }),
		total("cache_flushes_total", "Times that a cache dropped everything, at a fail-over or in jeopardy.", func(t totals) uint64 { return t.stats.Cache.Flushes }),
		total("events_delivered_total", "Events that the program has taken.", func(t totals) uint64 { return t.stats.EventsDelivered }),
		total("events_dropped_total", "Events for which there was no room, because the program took them too slowly: it was told to look again.", func(t totals) uint64 { return t.stats.EventsDropped }),
		gauge("events_waiting", "Events that the program has not taken yet.", func(p present) int { return p.stats.EventsWaiting }),
		gauge("handles_open", "Handles that the program has open.", func(p present) int { return p.stats.Handles }),
		gauge("lock_requests_waiting", "Requests that wait in queues of locks.", func(p present) int { return p.stats.QueuePlaces }),
		gauge("cache_entries", "Names of which something is cached.", func(p present) int { return p.stats.Cache.Entries }),
		gauge("cache_bytes", "Bytes of what is cached, counted roughly.", func(p present) int { return p.stats.Cache.Bytes }),
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

func sessionsDesc() *prometheus.Desc {
	return describe("sessions", "Sessions that are open, by state: safe; jeopardy, while the lease has run out and may still be saved; expired, until the program closes them.", "state")
}

func leaseDesc() *prometheus.Desc {
	return describe("lease_left_seconds", "How long the shortest lease of a session still runs by the local clock; below 0 in jeopardy. It is missing if no session has a lease.")
}

// stateLabels are the states of a session, in the words of the metrics.
func stateLabels() map[session.State]string {
	return map[session.State]string{session.Safe: "safe", session.Jeopardy: "jeopardy", session.Gone: "expired"}
}

// collectors are the metrics that are counted as it happens.
func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls.all, m.waits.all, m.holds.all, m.connections, m.reconnects}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
	for _, r := range readings() {
		to <- r.desc
	}
	to <- sessionsDesc()
	to <- leaseDesc()
}

// Collect implements prometheus.Collector. It asks each open session, which takes its mutexes for a moment.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
	all, now := m.look()
	for _, r := range readings() {
		to <- prometheus.MustNewConstMetric(r.desc, r.kind, r.of(all, now))
	}
	for state, label := range stateLabels() {
		to <- prometheus.MustNewConstMetric(sessionsDesc(), prometheus.GaugeValue, float64(now.states[state]), label)
	}
	if now.leased > 0 {
		to <- prometheus.MustNewConstMetric(leaseDesc(), prometheus.GaugeValue, now.leastLeft.Seconds())
	}
}
