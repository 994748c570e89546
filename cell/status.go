package cell

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// served is a replica as its services see it; see wire.Replica.
type served struct{ r *Replica }

func (s served) Master() (*master.Master, error) {
	if m := s.r.master.Load(); m != nil {
		return m, nil
	}
	return nil, s.r.notMaster()
}

func (s served) Counts() map[string]uint64 {
	counts := map[string]uint64{}
	s.r.metrics.master.counts(counts)
	s.r.metrics.calls.counts(counts)
	return counts
}

func (s served) Takeovers() []api.Takeover { return s.r.metrics.master.takeovers.list() }

func (s served) Location() wire.Location {
	h := s.r.Health()
	state := s.r.fsm.State()
	l := wire.Location{CellID: state.CellID, Epoch: h.Epoch}
	if state.Roster.Version > 0 { // otherwise clients are configured with all servers
		l.ServersVersion = state.Roster.Version
		for _, server := range s.r.servers() { // read after the roster, and never older than it
			if address := s.r.clientAddress(string(server.ID)); address != "" {
				l.Servers = append(l.Servers, address)
			} else {
				l.ServersVersion = 0
			}
		}
	}
	if h.Ready {
		l.Master, l.Address = h.Master, h.Address
	}
	return l
}

// Status implements wire.Replica. Its cost is independent of the cell's size: the hash is the running one that
// replicas compare, of the same moment as the applied index.
func (s served) Status() api.Status {
	r, state := s.r, s.r.fsm.State()
	health := r.Health()
	status := api.Status{
		Cell:   r.cfg.Cell,
		CellID: state.CellID,
		Master: health.Master,
		Epoch:  api.Epoch(health.Epoch),
		Level:  state.Level,
		Replicas: []api.ReplicaStatus{{
			ID:        r.cfg.ID,
			Role:      health.Role,
			Client:    r.clientAddress(r.cfg.ID),
			Term:      r.raft.CurrentTerm(),
			Last:      r.raft.LastIndex(),
			Applied:   state.Applied,
			Healthy:   health.Ready,
			Version:   Version(),
			DiskFree:  disk.Free(r.cfg.Data),
			StateHash: fmt.Sprintf("%016x", state.History),
			LogStore:  string(r.cfg.LogStore),
			MaxLevel:  r.cfg.supports,
		}},
	}
	if of := state.Restored; of != nil {
		status.Restored = &api.Restoration{AtUnix: of.AtUnix, Counter: of.Counter, Index: of.Source.Index, TakenUnix: of.Source.TakenUnix, Recovered: of.Source.Recovered}
	}
	if o := r.outages.now.Load(); o != nil {
		status.Acts = []api.Act{{Kind: "outage", Replica: r.cfg.ID, Principal: o.Principal, SinceUnix: o.unix}}
	}
	if r.master.Load() != nil {
		counts := state.Tree.Counts()
		status.Sessions, status.Nodes, status.Locks = uint64(state.Sessions.Len()), uint64(counts.Nodes), uint64(counts.Locks)
		status.Acts = r.actsUnderWay(state)
	}
	return status
}

// actsUnderWay returns the acts of several steps in progress, each of which blocks others.
func (r *Replica) actsUnderWay(state *raftfsm.State) (acts []api.Act) {
	if by, sealed := state.Restoring(); by != 0 {
		act := api.Act{Kind: "restore", Session: by, SinceUnix: state.RestoringSince(), Sealed: sealed}
		if one, ok := state.Sessions.Get(by); ok {
			act.Principal = one.Principal
		}
		if others := state.Sessions.Len() - 1; sealed && others > 0 {
			act.Waits = fmt.Sprintf("sessions that have not ended: %d", others)
		}
		acts = append(acts, act)
	}
	if one, busy := state.Roster.Unsettled(); busy {
		act := api.Act{Kind: one.Phase.String(), Replica: one.ID, Principal: state.Roster.Author, SinceUnix: state.Roster.SinceUnix}
		if stuck := r.stuck.Load(); stuck != nil && stuck.id == one.ID {
			act.Waits = stuck.why
		}
		acts = append(acts, act)
	}
	return acts
}

func (s served) Members() ([]api.Member, error) {
	roster := s.r.fsm.State().Roster // before the servers: otherwise a newcomer might be in neither
	var list []api.Member
	for _, server := range s.r.servers() {
		one := api.Member{
			ID:     string(server.ID),
			Raft:   string(server.Address),
			Client: s.r.clientAddress(string(server.ID)),
			Voter:  server.Suffrage == raft.Voter,
		}
		for _, m := range s.r.cfg.Members {
			if m.ID == one.ID {
				one.HTTP = m.HTTP
			}
		}
		if m, ok := roster.Find(one.ID); ok {
			one.HTTP = cmp.Or(one.HTTP, m.HTTP)
			if m.Phase != raftfsm.Settled {
				one.Phase = m.Phase.String()
			}
		}
		list = append(list, one)
	}
	waiting := roster.Spares()
	if m, busy := roster.Unsettled(); busy && !slices.ContainsFunc(list, func(one api.Member) bool { return one.ID == m.ID }) {
		waiting = append(waiting, m)
	}
	for _, m := range waiting {
		list = append(list, api.Member{ID: m.ID, Raft: m.Raft, Client: m.Client, HTTP: m.HTTP, Phase: m.Phase.String()})
	}
	if stuck := s.r.stuck.Load(); stuck != nil {
		for i := range list {
			if list[i].ID == stuck.id && list[i].Phase != "" {
				list[i].Waits = stuck.why
			}
		}
	}
	return list, nil
}

func (s served) Transfer(ctx context.Context, to string) (string, error) {
	if err := s.r.Transfer(ctx, to); err != nil {
		return "", err
	}
	if to == s.r.cfg.ID {
		return to, nil
	}
	return s.r.successor(ctx), nil
}

// role returns the replica's role, in the words of cell status.
func (r *Replica) role() string {
	switch {
	case r.master.Load() != nil:
		return "master"
	case r.raft.State() == raft.Follower:
		return "replica"
	}
	return "candidate"
}

// Version returns the version of this build: the module's, or "devel".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

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
