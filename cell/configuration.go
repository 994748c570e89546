package cell

import (
	"slices"

	"github.com/hashicorp/raft"
)

// servers are the replicas of the cell in Raft's newest configuration, which may not have committed yet; or before Raft runs, those
// of the log as it was opened.
func (r *Replica) servers() []raft.Server {
	running := r.running.Load()
	if running == nil {
		return r.stores.Configuration().Servers
	}
	configuration := running.GetConfiguration()
	if configuration.Error() != nil { // it never has one
		return nil
	}
	return configuration.Configuration().Servers
}

// isConfigured reports whether Raft's newest configuration has a replica.
func (r *Replica) isConfigured(id string) bool {
	return slices.ContainsFunc(r.servers(), func(s raft.Server) bool { return string(s.ID) == id })
}

// memberAt returns the ID of the replica that has a Raft address.
func (r *Replica) memberAt(address string) (id string, ok bool) {
	for _, s := range r.servers() {
		if string(s.Address) == address {
			return string(s.ID), true
		}
	}
	if roster := r.stores.Identity().Get().Roster; roster != nil { // this one may be far behind
		for _, m := range roster.Members {
			if m.Raft == address && !m.Left {
				return m.ID, true
			}
		}
		return "", false
	}
	for _, m := range r.cfg.Members {
		if m.Raft == address {
			return m.ID, true
		}
	}
	return "", false
}

// mayBeNewcomer reports whether a replica that the data directory does not know may have been let into the cell all the same. Raft's newest
// configuration may have it, by an entry that is not applied here yet. And a replica that follows no leader, or one that it does not know
// either, may have been away for
// long: while it refuses the newcomer it hears nothing, and the cell may have no majority without it. One that leads, or follows a leader
// that it knows, hears of newcomers from the log.
func (r *Replica) mayBeNewcomer(id string) bool {
	running := r.running.Load()
	if running == nil || r.isConfigured(id) {
		return true
	}
	_, leader := running.LeaderWithID()
	return r.stores.Identity().Get().KnownIncarnation(string(leader)) == ""
}

// voters are the IDs of the replicas that vote.
func (r *Replica) voters() (ids []string) {
	for _, s := range r.servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}
