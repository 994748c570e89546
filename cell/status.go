package cell

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/hashicorp/raft"
	"github.com/prometheus/common/expfmt"
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
		status.Acts = s.actsUnderWay(state)
	}
	return status
}

// actsUnderWay returns the acts of several steps in progress, each of which blocks others.
func (s served) actsUnderWay(state *raftfsm.State) (acts []api.Act) {
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
		if stuck := s.r.membership.stuck.Load(); stuck != nil && stuck.id == one.ID {
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
	if stuck := s.r.membership.stuck.Load(); stuck != nil {
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
	return s.r.handOvers.successor(ctx), nil
}

func (s served) Vacate(ctx context.Context, m *master.Master, ask wire.Outage) error {
	if _, err := s.r.handOvers.successors(""); err != nil {
		return err
	}
	o := &outage{Outage: ask, unwanted: ctx.Done(), ended: make(chan struct{})}
	select {
	case s.r.outages.asked <- o:
		<-o.ended // when ctx or ask.Length has ended, and the election timeouts
		return nil
	case <-m.Context().Done():
		return s.r.notMaster()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// levelProbeLimit is how long the master waits for a replica's feature level: a running one answers within
// milliseconds.
const levelProbeLimit = 2 * time.Second

// Levels implements wire.Replica. It asks every configured member anew: an older binary may have replaced one.
func (s served) Levels(ctx context.Context) ([]api.MemberLevel, error) {
	r := s.r
	servers := r.servers() // first: else a replica that is added meanwhile is listed, and was not asked
	reports := r.ask(ctx, r.others(), levelProbeLimit)
	if ctx.Err() != nil {
		return nil, &api.Error{Code: api.Unavailable, Message: "the call ended while the replicas were asked for their feature levels", Err: context.Cause(ctx)}
	}
	var list []api.MemberLevel
	for _, server := range servers {
		one := api.MemberLevel{ID: string(server.ID), MaxLevel: int(reports[string(server.ID)].MaxLevel)} // 0 of one that did not answer
		if one.ID == r.cfg.ID {
			one.MaxLevel = r.cfg.supports
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b api.MemberLevel) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// MayLeave implements wire.Replica. It accepts replicas outside the cell, and the last one: the log rejects
// those.
func (s served) MayLeave(ctx context.Context, id string, joined bool) error {
	roster := s.r.fsm.State().Roster
	if one, known := roster.Find(id); !s.r.isConfigured(id) || known && one.Phase != raftfsm.Settled {
		return nil
	}
	voters, answer := s.r.membership.wouldStay(ctx, id, s.r.servers())
	if joined {
		voters, answer = voters+1, answer+1
	}
	if voters > 0 && answer <= voters/2 {
		return &refusal.Refusal{Cause: refusal.MemberNeeded, Path: id, Used: int64(answer), Allowed: int64(voters)}
	}
	return nil
}

func (s served) Newcomer(_ context.Context, id, address string) (raftfsm.Member, int, error) {
	if s.r.isConfigured(id) {
		return raftfsm.Member{}, 0, &refusal.Refusal{Cause: refusal.MemberUsed, Path: id}
	}
	report, err := s.r.port.AskBootstrap(identity.Member{ID: id, Raft: address})
	if err != nil {
		return raftfsm.Member{}, 0, &api.Error{Code: api.Unavailable, Err: err, Message: "replica " + id + " does not answer at " + address + " as one that waits to be added: start it with --join, and see its log: " + err.Error()}
	}
	if !report.Joins {
		return raftfsm.Member{}, 0, api.Errorf(api.InvalidArgument, "replica %s does not wait to be added: start it with --join, on an empty data directory", id)
	}
	return raftfsm.Member{ID: id, Raft: address, Client: report.Client, HTTP: report.HTTP, Incarnation: report.Incarnation}, report.MaxLevel, nil
}

func (s served) Founders() (founders []raftfsm.Member) {
	for _, server := range s.r.servers() {
		founders = append(founders, raftfsm.Member{ID: string(server.ID), Raft: string(server.Address)})
	}
	return founders
}

// debugParts returns the parts of a replica's fault report. Parts that are in Config.Debug come from there.
func debugParts() []string { return []string{"metrics", "goroutines", "log", "config"} }

func (s served) Debug(principal, part string) ([]byte, error) {
	if err := s.r.fsm.State().PermitOperator(principal); err != nil {
		return nil, err
	}
	if !slices.Contains(debugParts(), part) {
		return nil, api.Errorf(api.InvalidArgument, "no part of a replica's report is called %.40q: want one of %s", part, strings.Join(debugParts(), ", "))
	}
	var text bytes.Buffer
	switch part {
	case "metrics":
		families, err := s.r.metrics.registry.Gather()
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				return nil, api.Errorf(api.Unavailable, "the metrics could not be written: %v", err)
			}
		}
		if err != nil {
			return nil, api.Errorf(api.Unavailable, "the metrics could not be gathered: %v", err)
		}
	case "goroutines":
		if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil { // groups goroutines with the same stack
			return nil, api.Errorf(api.Unavailable, "the goroutines could not be written: %v", err)
		}
	default:
		if own := s.r.cfg.Debug[part]; own != nil {
			return own(), nil
		}
	}
	return text.Bytes(), nil
}
