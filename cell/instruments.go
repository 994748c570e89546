package cell

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of a replica. The registry is its own, so that several replicas can run in one
// process.
type metrics struct {
	registry *prometheus.Registry
	master   *masterMetrics // of this replica as master
	refusals prometheus.Counter
	shed     prometheus.Counter
	late     prometheus.Counter

	calls     *callTimes
	appends   prometheus.Histogram
	applies   prometheus.Histogram
	proofs    prometheus.Histogram
	unproven  prometheus.Counter
	takeovers *takeoverTimes
	sizes     prometheus.Histogram
}

func (m *metrics) proofEnded(took time.Duration, err error) {
	m.proofs.Observe(took.Seconds())
	if err != nil {
		m.unproven.Inc()
	}
}

func (m *metrics) entrySized(bytes int) { m.sizes.Observe(float64(bytes)) }

func histogram(name, help string, first float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "chubby", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 4, 10)})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "chubby", Name: name, Help: help})
}
