package cell

import (
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

// takeoverTimes is how long this replica needed to become the master, and where the time went.
type takeoverTimes struct {
	clock session.Clock
	whole prometheus.Histogram // until it served
	parts *prometheus.HistogramVec

	// awaiting is since when a master has served that has not extended a lease yet, of sessions that outlived the one
	// before; 0 if there is none. Every extension reads it.
	awaiting atomic.Int64
}

// The parts of a takeover, as the label phase has them. The first two come one after the other; the others begin then,
// beside each other.
const (
	phaseLog    = "log"
	phaseLeases = "leases"
	phaseFirst  = "first_lease"
	phaseCaches = "caches"
)

func newTakeoverTimes(clock session.Clock) *takeoverTimes {
	t := &takeoverTimes{
		clock: clock,
		whole: histogram("takeover_seconds", "Time from this replica's election until it served as master.", 0.001),
		parts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "chubby", Name: "takeover_phase_seconds",
			Help:    "Time of the phases of a take-over. log: from the election until everything in the log was applied, and the epoch was in it; leases: until every session had its lease anew. Then it serves, and beside each other begin first_lease: until the first lease was extended; and caches: until all clients had dropped what they had cached, or their cache leases were over, for which changes wait. The last two are there only if sessions, or clients with caches, outlived the master before.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"phase"}),
	}
	for _, phase := range []string{phaseLog, phaseLeases, phaseFirst, phaseCaches} {
		t.parts.WithLabelValues(phase) // it is there before it has a value
	}
	return t
}

func (t *takeoverTimes) observe(phase string, took time.Duration) {
	t.parts.WithLabelValues(phase).Observe(took.Seconds())
}

// served notes that a master serves which was elected at the first moment and had the log at the second.
// The metrics are told of the lease that is extended next, if there are sessions.
func (t *takeoverTimes) served(elected, applied session.Instant, sessions int) (took time.Duration) {
	now := t.clock()
	t.observe(phaseLog, applied.Sub(elected))
	t.observe(phaseLeases, now.Sub(applied))
	t.whole.Observe(now.Sub(elected).Seconds())
	if sessions > 0 {
		t.awaiting.Store(int64(now))
	}
	return now.Sub(elected)
}

// ended notes that the master does not serve any more.
func (t *takeoverTimes) ended() { t.awaiting.Store(0) }

// leaseExtended notes that a master has extended a lease.
func (t *takeoverTimes) leaseExtended() {
	if t.awaiting.Load() == 0 { // mostly
		return
	}
	if since := t.awaiting.Swap(0); since != 0 {
		t.observe(phaseFirst, t.clock().Sub(session.Instant(since)))
	}
}
