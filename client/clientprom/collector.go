package clientprom

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Metrics)(nil)

// reading is one metric that is read when metrics are asked for.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(counts) float64 // of one session; the metric is the sum: a counter of all sessions, a gauge of the open ones
}

// counts is what a session has counted.
type counts struct {
	client.Stats
	lost uint64 // 1 if it ended otherwise than by Close
}

// readings are all of them but those with labels, and the lease.
func readings() []reading {
	total := func(name, help string, of func(counts) uint64) reading {
		return reading{describe(name, help), prometheus.CounterValue, func(s counts) float64 { return float64(of(s)) }}
	}
	gauge := func(name, help string, of func(counts) int) reading {
		return reading{describe(name, help), prometheus.GaugeValue, func(s counts) float64 { return float64(of(s)) }}
	}
	return []reading{
		total("sessions_opened_total", "Sessions opened.", func(counts) uint64 { return 1 }),
		total("sessions_lost_total", "Sessions that ended otherwise than by Close, and all that depended on them.", func(s counts) uint64 { return s.lost }),
		total("jeopardies_total", "Times that the lease of a session ran out by the local clock.", func(s counts) uint64 { return s.Jeopardies }),
		total("rescues_total", "Times that a session became safe again after its lease had run out.", func(s counts) uint64 { return s.Rescues }),
		total("failovers_total", "Masters after the first, as each session has seen them.", func(s counts) uint64 { return s.FailOvers }),
		total("keepalives_total", "KeepAlives sent.", func(s counts) uint64 { return s.KeepAlives }),
		total("keepalives_failed_total", "KeepAlives that were refused, or not answered in time.", func(s counts) uint64 { return s.KeepAlivesFailed }),
		total("attempts_total", "Times that a call was sent to a replica, without KeepAlives and calls that need no session; more than there are calls if some had to be repeated.", func(s counts) uint64 { return s.Attempts }),
		total("cache_hits_total", "Reads and opens that a cache answered.", func(s counts) uint64 { return s.Cache.Hits }),
		total("cache_misses_total", "Reads and opens that asked the cell, of sessions that cache.", func(s counts) uint64 { return s.Cache.Misses }),
		total("cache_invalidations_total", "Names that the cell had the caches drop.", func(s counts) uint64 { return s.Cache.Invalidations }),
		total("cache_flushes_total", "Times that a cache dropped everything, at a fail-over or in jeopardy.", func(s counts) uint64 { return s.Cache.Flushes }),
		total("events_delivered_total", "Events that the program has taken.", func(s counts) uint64 { return s.EventsDelivered }),
		total("events_dropped_total", "Events for which there was no room, because the program took them too slowly: it was told to look again.", func(s counts) uint64 { return s.EventsDropped }),
		gauge("events_waiting", "Events that the program has not taken yet.", func(s counts) int { return s.EventsWaiting }),
		gauge("handles_open", "Handles that the program has open.", func(s counts) int { return s.Handles }),
		gauge("lock_requests_waiting", "Requests that wait in queues of locks.", func(s counts) int { return s.QueuePlaces }),
		gauge("cache_entries", "Names of which something is cached.", func(s counts) int { return s.Cache.Entries }),
		gauge("cache_bytes", "Bytes of what is cached, counted roughly.", func(s counts) int { return s.Cache.Bytes }),
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
	for _, r := range m.readings {
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
	m.mu.Lock()
	sums := slices.Clone(m.closed)
	states := map[session.State]int{}
	var left []time.Duration // of leases that count still
	for c := range m.open {
		m.add(sums, c, true)
		state := c.State()
		states[state]++
		if state != session.Gone {
			left = append(left, c.Left())
		}
	}
	m.mu.Unlock()
	for i, r := range m.readings {
		to <- prometheus.MustNewConstMetric(r.desc, r.kind, sums[i])
	}
	for state, label := range stateLabels() {
		to <- prometheus.MustNewConstMetric(sessionsDesc(), prometheus.GaugeValue, float64(states[state]), label)
	}
	if len(left) > 0 {
		to <- prometheus.MustNewConstMetric(leaseDesc(), prometheus.GaugeValue, slices.Min(left).Seconds())
	}
}

// Metrics is what sessions count together. It implements prometheus.Collector, and its methods
// may be called from several goroutines.
type Metrics struct {
	calls        *callTimes
	waits, holds *modeTimes
	connections  prometheus.Counter
	reconnects   prometheus.Counter
	readings     []reading

	mu     sync.Mutex // guards what follows; mutexes of package client may be taken while it is held
	open   map[*client.Client]struct{}
	closed []float64 // the sums of the counters of sessions that were closed
}

// New returns metrics of no session yet.
func New() *Metrics {
	m := &Metrics{
		calls:       newCallTimes(),
		waits:       newModeTimes("lock_wait_seconds", "Time from Acquire to the lock that it returned."),
		holds:       newModeTimes("lock_hold_seconds", "Time from the moment at which Acquire or TryAcquire returned a lock until its owner released it, also if it was lost before."),
		connections: counter("connections_total", "Connections made to replicas."),
		reconnects:  counter("reconnects_total", "Connections that took the place of one that had ended."),
		readings:    readings(),
		open:        map[*client.Client]struct{}{},
	}
	m.closed = make([]float64, len(m.readings))
	return m
}

const namespace = "chubbyclient"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

// Meter returns what Config.Meter is to be set to.
func (m *Metrics) Meter() *client.Meter {
	return &client.Meter{
		Opened: m.sessionOpened, Closed: m.sessionClosed, Called: m.calls.called,
		Acquired: m.waits.observe, Released: m.holds.observe, Connected: m.connected,
	}
}

func (m *Metrics) connected(again bool) {
	m.connections.Inc()
	if again {
		m.reconnects.Inc()
	}
}

func (m *Metrics) sessionOpened(c *client.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[c] = struct{}{}
}

// sessionClosed keeps what a session has counted, so that no counter goes back.
func (m *Metrics) sessionClosed(c *client.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.open[c]; ok {
		delete(m.open, c)
		m.add(m.closed, c, false)
	}
}

// add adds what a session has counted to the sums, and what it has now if it is open.
func (m *Metrics) add(sums []float64, c *client.Client, open bool) {
	s := counts{Stats: c.Stats()}
	if err := c.Err(); err != nil && !errors.Is(err, client.Closed) {
		s.lost = 1
	}
	for i, r := range m.readings {
		if open || r.kind == prometheus.CounterValue {
			sums[i] += r.of(s)
		}
	}
}

// maxCalls bounds the pairs of an operation and a code that have a histogram of their own. The library
// has some 40 operations, of which a program uses few; further pairs are counted together.
const maxCalls = 512

// The labels of those, and of codes that this version does not know, as a newer cell may answer with.
const (
	otherOp   = "other"
	otherCode = "other"
)

// callTimes is how long calls took, by operation and code. Every call passes here, so it finds the
// histogram of a call without a lock, and without making anything.
type callTimes struct {
	all *prometheus.HistogramVec
	one atomic.Pointer[map[callKind]prometheus.Observer] // never changed: replaced, by an owner of mu

	mu sync.Mutex // is held while one is replaced
}

type callKind struct {
	op   string
	code api.Code // unknownCode for all that are not known
}

// unknownCode is no code of a cell.
const unknownCode api.Code = math.MaxUint32

func newCallTimes() *callTimes {
	t := &callTimes{all: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "call_seconds",
		Help:    "Time of a call with all its attempts, by operation, in the words of errors, and by code. Calls that a cache answered, and KeepAlives, are not among them; those that acquire locks wait as long as they have to.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
	}, []string{"op", "code"})}
	t.one.Store(&map[callKind]prometheus.Observer{})
	return t
}

func (t *callTimes) called(op string, code api.Code, took time.Duration) {
	one := (*t.one.Load())[callKind{op, code}]
	if one == nil {
		one = t.add(callKind{op, code})
	}
	one.Observe(took.Seconds())
}

// add makes the histogram of calls that none has been told of before.
func (t *callTimes) add(kind callKind) prometheus.Observer {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, code := *t.one.Load(), kind.code.String()
	if kind.code != api.OK && !slices.Contains(api.Codes(), kind.code) {
		kind.code, code = unknownCode, otherCode
	}
	if len(known) >= maxCalls {
		kind.op = otherOp // of which there are as many as there are codes
	}
	if one := known[kind]; one != nil {
		return one
	}
	one, next := t.all.WithLabelValues(kind.op, code), maps.Clone(known)
	next[kind] = one
	t.one.Store(&next)
	return one
}

// modeTimes is how long something about locks took, by the mode of the lock.
type modeTimes struct {
	all *prometheus.HistogramVec

	exclusive, shared prometheus.Observer
}

func newModeTimes(name, help string) *modeTimes {
	t := &modeTimes{all: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 12), // up to half an hour, as the cell's
	}, []string{"mode"})}
	t.exclusive, t.shared = t.all.WithLabelValues(api.Exclusive.String()), t.all.WithLabelValues(api.Shared.String())
	return t
}

func (t *modeTimes) observe(mode api.LockMode, took time.Duration) {
	one := t.exclusive
	if mode == api.Shared {
		one = t.shared
	}
	one.Observe(took.Seconds())
}
