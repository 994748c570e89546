package cell

import (
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/prometheus/client_golang/prometheus"
)

// gauges are what is read in one go when metrics are asked for: what waits in the master, and how far the
// other replicas are.
type gauges struct {
	replica *Replica
	backlog []backlogGauge
	peers   *prometheus.Desc
	drill   *prometheus.Desc
}

type backlogGauge struct {
	desc *prometheus.Desc
	of   func(master.Backlog) int
}

func newGauges(r *Replica) *gauges {
	one := func(name, help string, of func(master.Backlog) int) backlogGauge {
		return backlogGauge{desc: prometheus.NewDesc("chubby_"+name, help+" 0 if this replica is not the master.", nil, nil), of: of}
	}
	return &gauges{
		replica: r,
		backlog: []backlogGauge{
			one("lock_requests_waiting", "Requests that wait for locks.", func(b master.Backlog) int { return b.Waiters }),
			one("changes_waiting", "Names whose changes wait for clients to drop what they have cached.", func(b master.Backlog) int { return b.Changes }),
			one("lock_delays", "Locks that nobody gets for now, because their last holder did not release them.", func(b master.Backlog) int { return b.Delays }),
			one("handles_open", "Handles that clients have open.", func(b master.Backlog) int { return b.Handles }),
			one("events_waiting_bytes", "Bytes of events that clients have not acknowledged.", func(b master.Backlog) int { return b.Mail }),
			one("cached_copies_bytes", "Bytes in which the master remembers what clients may have cached.", func(b master.Backlog) int { return b.Copies }),
			one("commands_waiting", "Commands that wait to be put into the Raft log.", func(b master.Backlog) int { return b.Proposals }),
		},
		peers: prometheus.NewDesc("chubby_peer_held_index", "The last Raft entry up to which another replica is known to hold the log. 0 if this one does not know.", []string{"peer"}, nil),
		drill: prometheus.NewDesc("chubby_drill", "1 while a drill of that kind goes on that this replica began as the master: what is wrong then is wrong because somebody wants to see it.", []string{"kind"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, one := range g.backlog {
		to <- one.desc
	}
	to <- g.peers
	to <- g.drill
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	var now master.Backlog
	if m := g.replica.master.Load(); m != nil {
		now = m.Backlog()
	}
	for _, one := range g.backlog {
		to <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, float64(one.of(now)))
	}
	for _, s := range g.replica.servers() {
		if id := string(s.ID); id != g.replica.cfg.ID {
			to <- prometheus.MustNewConstMetric(g.peers, prometheus.GaugeValue, float64(g.replica.passport.HeldBy(id)), id)
		}
	}
	running, _ := g.replica.drills.running()
	for _, kind := range wire.DrillKinds() {
		value := 0.0
		if kind == running {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(g.drill, prometheus.GaugeValue, value, kind.Word())
	}
}
