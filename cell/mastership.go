package cell

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// leads reports whether this replica led Raft during the call, and in which term.
func (r *Replica) leads() (term uint64, leads bool) {
	term = r.raft.CurrentTerm()
	return term, r.raft.State() == raft.Leader && r.raft.CurrentTerm() == term
}

// notMaster returns the error of a replica that is not the master, with the believed master.
func (r *Replica) notMaster() error {
	address, id := r.raft.LeaderWithID()
	if id == "" || string(id) == r.cfg.ID {
		if o := r.outages.now.Load(); o != nil {
			return r.outageError(o)
		}
		return api.Errorf(api.Unavailable, "replica %s knows of no master that serves; an election takes about a second: try again", r.cfg.ID)
	}
	master := r.clientAddress(string(id))
	return &api.Error{
		Code: api.NotMaster, Master: master,
		Message: fmt.Sprintf("replica %s is not the master; it believes %s is, at %s (raft %s)", r.cfg.ID, id, master, address),
	}
}

// masterAddress returns where clients reach the believed master; "" if none is known.
func (r *Replica) masterAddress() string {
	_, id := r.raft.LeaderWithID()
	return r.clientAddress(string(id))
}

// clientAddress returns where clients reach a replica, as it reported or as configured.
func (r *Replica) clientAddress(id string) string {
	if id == r.cfg.ID {
		return r.advertised()
	}
	if address := r.port.ClientAddress(id); address != "" {
		return address
	}
	for _, m := range r.cfg.Members {
		if m.ID == id {
			return m.Client
		}
	}
	if m, ok := r.fsm.State().Roster.Find(id); ok {
		return m.Client
	}
	return ""
}
