package cell

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/cell/internal/peer"
)

// compareEvery is the time between two questions to every other replica.
const compareEvery = 5 * time.Second

// compare asks every other replica regularly, until ctx ends.
func (r *Replica) compare(ctx context.Context) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, m := range r.cfg.Members {
			if m.ID != r.cfg.ID {
				r.prober.Ask(m.ID, m.Raft, func(peer.Report) {}) // hear has it first
			}
		}
	}
}

// hear takes the answers to all probes, those of the fence too.
func (r *Replica) hear(id string, report peer.Report) {
	r.passport.Saw(id, report.Applied)
	r.comparison.Heard(id, report.Applied, report.History)
}

// report answers a probe.
func (r *Replica) report() peer.Report {
	term := r.raft.CurrentTerm()
	state := r.fsm.State()
	return peer.Report{Term: term, Last: r.raft.LastIndex(), Applied: state.Applied, History: state.History}
}
