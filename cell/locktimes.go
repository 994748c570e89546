package cell

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/prometheus/client_golang/prometheus"
)

// MaxMetricPrefixes is the maximum of Config.MetricPrefixes: each has its own metrics.
const MaxMetricPrefixes = 32

// lockTimes measures how long locks are waited for and held. Locks below configured paths count apart, all
// others together, which limits the number of metrics.
type lockTimes struct {
	waits, holds *prometheus.HistogramVec
	prefixes     []prefixTimes // the longest first
	others       prefixTimes
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
	l.others = one("", "")
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
	return l.others
}

func (l *lockTimes) waited(name api.Name, d time.Duration, trace string) {
	observe(l.of(name).waits, d, trace)
}

func (l *lockTimes) held(name api.Name, d time.Duration) { l.of(name).holds.Observe(d.Seconds()) }
