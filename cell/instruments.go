package cell

import (
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// callTimes measures clients' calls, by method and code. Every call passes here, so the lookup of a histogram
// allocates nothing.
type callTimes struct {
	all *prometheus.HistogramVec

	mu  sync.RWMutex // guards one
	one map[callKind]prometheus.Observer
}

// callKind has few values: method is the full name of a method that exists.
type callKind struct {
	method string
	code   api.Code
}

func newCallTimes(m meter) *callTimes {
	return &callTimes{
		all: m.histograms("call_seconds", "Time from the arrival of a client's call to its answer, by method and code. KeepAlive, KeepAlives and Acquire wait as long as they have to.",
			prometheus.ExponentialBuckets(0.0001, 4, 10), "code", "method"),
		one: map[callKind]prometheus.Observer{},
	}
}

// answered counts a call that has ended. trace is the ID of its trace, or "".
func (c *callTimes) answered(method string, code api.Code, took time.Duration, trace string) {
	observe(c.of(callKind{method, code}), took, trace)
}

// observe counts a duration, with the trace, if there is one, as its exemplar.
func observe(o prometheus.Observer, took time.Duration, trace string) {
	if to, ok := o.(prometheus.ExemplarObserver); ok && trace != "" {
		to.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	o.Observe(took.Seconds())
}

// counts adds the numbers of answered calls, in all and by method.
func (c *callTimes) counts(into map[string]uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for kind, one := range c.one {
		if m, ok := one.(prometheus.Metric); ok {
			n := count(m)
			into["calls"] += n
			into["call:"+path.Base(kind.method)] += n
		}
	}
}

func (c *callTimes) of(kind callKind) prometheus.Observer {
	c.mu.RLock()
	one := c.one[kind]
	c.mu.RUnlock()
	if one != nil {
		return one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	one = c.all.WithLabelValues(kind.code.String(), path.Base(kind.method))
	c.one[kind] = one
	return one
}

// metrics are the metrics of a replica. The registry is its own, so that several replicas can run in one
// process.
type metrics struct {
	registry *prometheus.Registry
	master   *masterMetrics // of this replica as master
	refusals prometheus.Counter
	shed     prometheus.Counter
	late     prometheus.Counter

	calls    *callTimes
	appends  prometheus.Histogram
	applies  prometheus.Histogram
	proofs   prometheus.Histogram
	unproven prometheus.Counter
	sizes    prometheus.Histogram

	auditErrors atomic.Int64 // acts that the audit log failed to record
}

func (m *metrics) proofEnded(took time.Duration, err error) {
	m.proofs.Observe(took.Seconds())
	if err != nil {
		m.unproven.Inc()
	}
}

func (m *metrics) entrySized(bytes int) { m.sizes.Observe(float64(bytes)) }

// meter makes metrics, which its registry serves.
type meter struct{ promauto.Factory }

func (m meter) counter(name, help string) prometheus.Counter {
	return m.NewCounter(prometheus.CounterOpts{Namespace: "chubby", Name: name, Help: help})
}

// counted is counter for what is counted elsewhere.
func (m meter) counted(name, help string, read func() float64) {
	m.NewCounterFunc(prometheus.CounterOpts{Namespace: "chubby", Name: name, Help: help}, read)
}

func (m meter) gauge(name, help string, read func() float64) {
	m.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "chubby", Name: name, Help: help}, read)
}

func (m meter) histogram(name, help string, first float64) prometheus.Histogram {
	return m.NewHistogram(prometheus.HistogramOpts{Namespace: "chubby", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 4, 10)})
}

func (m meter) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.NewHistogramVec(prometheus.HistogramOpts{Namespace: "chubby", Name: name, Help: help, Buckets: buckets}, labels)
}
