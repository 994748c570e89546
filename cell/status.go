package cell

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"

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

func (s served) Takeovers() []wire.Takeover { return s.r.metrics.takeovers.list() }

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
func (s served) Status() wire.Status {
	r, state := s.r, s.r.fsm.State()
	health := r.Health()
	status := wire.Status{
		CellID:    state.CellID,
		Master:    health.Master,
		Epoch:     health.Epoch,
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
		Level:     state.Level,
		MaxLevel:  r.cfg.supports,
		Restored:  state.Restored,
	}
	if o := r.outages.now.Load(); o != nil {
		status.Acts = []wire.Act{{Kind: "outage", Replica: r.cfg.ID, Principal: o.Principal, SinceUnix: o.unix}}
	}
	if r.master.Load() != nil {
		counts := state.Tree.Counts()
		status.Sessions, status.Nodes, status.Locks = state.Sessions.Len(), counts.Nodes, counts.Locks
		status.Acts = r.actsUnderWay(state)
	}
	return status
}

// actsUnderWay returns the acts of several steps in progress, each of which blocks others.
func (r *Replica) actsUnderWay(state *raftfsm.State) (acts []wire.Act) {
	if by, sealed := state.Restoring(); by != 0 {
		act := wire.Act{Kind: "restore", Session: by, SinceUnix: state.RestoringSince(), Sealed: sealed}
		if one, ok := state.Sessions.Get(by); ok {
			act.Principal = one.Principal
		}
		if others := state.Sessions.Len() - 1; sealed && others > 0 {
			act.Waits = fmt.Sprintf("sessions that have not ended: %d", others)
		}
		acts = append(acts, act)
	}
	if one, busy := state.Roster.Unsettled(); busy {
		act := wire.Act{Kind: one.Phase.String(), Replica: one.ID, Principal: state.Roster.Author, SinceUnix: state.Roster.SinceUnix}
		if stuck := r.stuck.Load(); stuck != nil && stuck.id == one.ID {
			act.Waits = stuck.why
		}
		acts = append(acts, act)
	}
	return acts
}

func (s served) Members() ([]wire.Member, error) {
	roster := s.r.fsm.State().Roster // before the configuration: otherwise a newcomer might be in neither
	future := s.r.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return nil, err
	}
	var list []wire.Member
	for _, server := range future.Configuration().Servers {
		one := wire.Member{
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
	if m, busy := roster.Unsettled(); busy && !slices.ContainsFunc(list, func(one wire.Member) bool { return one.ID == m.ID }) {
		waiting = append(waiting, m)
	}
	for _, m := range waiting {
		list = append(list, wire.Member{ID: m.ID, Raft: m.Raft, Client: m.Client, HTTP: m.HTTP, Phase: m.Phase.String()})
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
