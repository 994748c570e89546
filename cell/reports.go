package cell

import (
	"context"

	"github.com/chubbylock/chubby/cell/internal/peer"
)

// probeOthers asks every other replica regularly, until ctx ends, so that replicas compare even without proofs.
func (r *Replica) probeOthers(ctx context.Context) {
	for range ticks(ctx, compareEvery) {
		others := r.others()
		var ids []string
		for _, s := range others {
			ids = append(ids, string(s.ID))
		}
		r.absences.asking(ids) // before they can answer
		r.comparison.Keep(ids)
		for _, s := range others {
			//mutant: _ = s //by TestDivergenceIsNoticed of ./cell
			r.prober.Ask(string(s.ID), string(s.Address), func(peer.Report) {}) // noteReport gets the answer first
		}
		if _, leader := r.raft.LeaderWithID(); leader != "" {
			continue
		}
		for _, m := range r.cfg.Members { // if it was down while all others were replaced, these may report that it was replaced, too
			if m.ID != r.cfg.ID && !r.isConfigured(m.ID) {
				r.prober.Ask(m.ID, m.Raft, func(peer.Report) {})
			}
		}
	}
}

// noteReport takes the answers to all probes, including the fence's.
func (r *Replica) noteReport(id string, report peer.Report) {
	r.absences.heard(id)
	//mutant: /* nothing */ //by TestDivergenceIsNoticed of ./cell
	r.passport.NoteHeld(id, report.Applied)
	if !r.comparison.Compare(id, report) {
		return
	}
	if m := r.master.Load(); m != nil {
		//mutant: /* nothing */ //by TestDivergenceIsNoticed of ./cell
		m.Inspector.CheckPoints.Soon() // a replica that differs from most others has to stop before it is the master
	}
}

func (r *Replica) probeReport() peer.Report {
	term := r.raft.CurrentTerm()
	state := r.fsm.State()
	report := peer.Report{
		Term:     term,
		Last:     r.raft.LastIndex(),
		Applied:  state.Applied,
		History:  state.History,
		MaxLevel: uint64(r.cfg.supports),
	}
	//mutant: if own := r.comparison.Own(); true { //by TestWhoMayLeaveContradictsNobody of ./cell
	if own := r.comparison.Own(); !r.leaving.Load() { // read last; see Replica.leaving
		report.Check = own
	}
	return report
}
