package cell

import (
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

// gauges is a prometheus.Collector of values read together: what waits in the master, and how far the other
// replicas are.
type gauges struct {
	replica *Replica
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

func newGauges(r *Replica) *gauges {
	one := func(name, help string, of func(api.Backlog) int) backlogGauge {
		return backlogGauge{desc: prometheus.NewDesc("chubby_"+name, help+" 0 if this replica is not the master.", nil, nil), of: of}
	}
	return &gauges{
		replica: r,
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
