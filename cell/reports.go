package cell

import (
	"context"
	"time"
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
				r.prober.ask(m.ID, m.Raft, func(termReport) {}) // hear has it first
			}
		}
	}
}

// hear takes the answers to all probes, those of the fence too.
func (r *Replica) hear(id string, report termReport) {
	r.passport.saw(id, report.applied)
	r.comparison.heard(id, report.applied, report.history)
}

// report answers a probe.
func (r *Replica) report() termReport {
	term := r.raft.CurrentTerm()
	state := r.fsm.State()
	return termReport{term: term, last: r.raft.LastIndex(), applied: state.Applied, history: state.History}
}
