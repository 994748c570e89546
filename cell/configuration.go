package cell

import (
	"slices"

	"github.com/hashicorp/raft"
)

// servers returns the replicas of Raft's newest configuration, perhaps uncommitted; before Raft runs, those of
// the log as opened.
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

func (r *Replica) isConfigured(id string) bool {
	return slices.ContainsFunc(r.servers(), func(s raft.Server) bool { return string(s.ID) == id })
}

func (r *Replica) memberAt(address string) (id string, ok bool) {
	for _, s := range r.servers() {
		if string(s.Address) == address {
			return string(s.ID), true
		}
	}
	if roster := r.stores.Identity().Get().Roster; roster != nil { // it may be far behind
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

// mayBeNewcomer reports whether the cell may have added a replica that the data directory does not know. Raft's
// newest configuration may have it, from an entry not applied yet. Or this replica follows no leader or an
// unknown one, after a long absence: without newcomers it hears nothing, and the cell may lack a majority. With
// a known leader, the log brings newcomers.
func (r *Replica) mayBeNewcomer(id string) bool {
	running := r.running.Load()
	if running == nil || r.isConfigured(id) {
		return true
	}
	_, leader := running.LeaderWithID()
	return r.stores.Identity().Get().KnownIncarnation(string(leader)) == ""
}

func (r *Replica) voters() (ids []string) {
	for _, s := range r.servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}
