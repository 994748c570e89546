package cell

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/hashicorp/raft"
)

// The replicated roster says which replicas the cell is to have. The master changes Raft's configuration
// accordingly, one replica at a time, and records each step, so that the next master can continue
// (docs/adr/0027-members-are-changed-by-the-master.md). This file decides when to take a step; Raft ensures
// that majorities overlap.

const (
	rosterEvery   = 200 * time.Millisecond // between two looks at the roster
	configureWait = 5 * time.Second        // for Raft to change its configuration
	nearlyAll     = 64                     // entries that a replica may lack when it gets a vote: fewer than arrive in an election timeout
	memberProbe   = time.Second            // for replicas' answers
)

// followRoster makes Raft's configuration follow the roster while this replica is the master.
func (r *Replica) followRoster(ctx context.Context) {
	var told reminder
	var stepped uint64 // the roster's version at this replica's last change of Raft's configuration
	for range ticks(ctx, rosterEvery) {
		if me := r.stores.Identity().Get(); me.Joined && !me.Begun && r.raft.LastIndex() > 0 {
			if err := r.stores.Identity().HoldsData(); err != nil {
				r.fail(err)
				return
			}
		}
		m := r.master.Load()
		if m == nil {
			r.stuck.Store(nil)
			continue
		}
		roster := r.fsm.State().Roster
		one, busy := roster.Unsettled()
		if !busy {
			r.stuck.Store(nil)
			if err := r.useSpare(ctx, m, roster); err != nil && told.due(r.clock(), err) {
				r.log.Warn("no spare can take the place of a replica that is dead", "event", "spare_missing", "error", err)
			}
			continue
		}
		err := r.takeStep(ctx, m, one, roster.Version == stepped, func() { stepped = roster.Version })
		if err == nil {
			r.stuck.Store(nil)
			continue
		}
		r.stuck.Store(&stuckChange{id: one.ID, why: err.Error()})
		if told.due(r.clock(), err) {
			r.log.Info("a change of the cell's replicas waits", "event", "member_waits", "member", one.ID, "phase", one.Phase.String(), "error", err)
		}
	}
}

// takeStep takes the next step for a replica that joins or leaves, and logs it. Its error says why the step is
// blocked.
//
// Each step names the configuration that it changes, read in the epoch of m, after the roster; Raft applies it
// to no other. A step of an earlier decision may still be pending, at a former master that leads again. So the
// master records a decision as done only after it has changed Raft's configuration for it, even into the same
// (stepped). Then earlier steps come too late.
func (r *Replica) takeStep(ctx context.Context, m *master.Master, one raftfsm.Member, stepped bool, step func()) error {
	index, err := r.configuredAt()
	if err != nil {
		return err
	}
	servers := r.servers() // without its index: hashicorp/raft v1.7.3 leaves it 0, which matches any configuration
	suffrage := raft.ServerSuffrage(-1)
	for _, s := range servers {
		if string(s.ID) == one.ID {
			suffrage = s.Suffrage
		}
	}
	if term := r.raft.CurrentTerm(); term != uint64(m.Epoch()) {
		return api.Errorf(api.Unavailable, "another master has begun, in epoch %d", term)
	}
	id, address := raft.ServerID(one.ID), raft.ServerAddress(one.Raft)
	switch {
	case one.Phase == raftfsm.Joining && suffrage == -1:
		if err := r.raft.AddNonvoter(id, address, index, configureWait).Error(); err != nil {
			return err
		}
		r.log.Info("a replica joins the cell, without a vote", "event", "member_joins", "member", one.ID, "address", one.Raft)
		return nil
	case one.Phase == raftfsm.Joining && suffrage == raft.Nonvoter:
		if err := r.hasCaughtUp(ctx, one); err != nil {
			return err
		}
		if err := r.raft.AddVoter(id, address, index, configureWait).Error(); err != nil {
			return err
		}
		step()
		r.log.Info("a replica has caught up, and has a vote", "event", "member_votes", "member", one.ID)
		return nil
	case one.Phase == raftfsm.Joining && !stepped:
		if err := r.raft.AddVoter(id, address, index, configureWait).Error(); err != nil { // it keeps its vote
			return err
		}
		step()
		return nil
	case one.Phase == raftfsm.Leaving && one.ID == r.cfg.ID:
		return r.Transfer(ctx, "") // the next master continues
	case one.Phase == raftfsm.Leaving && (suffrage != -1 || !stepped):
		if suffrage != -1 {
			if err := r.canGo(ctx, one, servers); err != nil {
				return err
			}
		}
		if err := r.raft.RemoveServer(id, index, configureWait).Error(); err != nil {
			return err
		}
		step()
		if suffrage != -1 {
			r.log.Info("a replica leaves the cell", "event", "member_leaves", "member", one.ID)
		}
		return nil
	}
	_, err = m.SettleMember(ctx, raftfsm.SettleMember{ID: one.ID, Phase: one.Phase})
	return err
}

// configuredAt returns the index of the entry with Raft's configuration, as applied here. Raft rejects a step
// that names an older one than its newest.
func (r *Replica) configuredAt() (uint64, error) {
	index := r.fsm.Configured()
	snapshots, err := r.stores.Snapshots().List()
	if err != nil {
		return 0, err
	}
	for _, s := range snapshots {
		index = max(index, s.ConfigurationIndex)
	}
	if index == 0 {
		return 0, api.Errorf(api.Unavailable, "this replica has not applied yet what makes the configuration of Raft")
	}
	return index, nil
}

// hasCaughtUp returns nil if a joining replica holds nearly all of the log and has recorded that it holds data:
// a voter must notice its loss.
func (r *Replica) hasCaughtUp(ctx context.Context, one raftfsm.Member) error {
	report, err := r.port.AskBootstrap(identity.Member{ID: one.ID, Raft: one.Raft})
	switch {
	case err != nil:
		return err
	case one.Incarnation != "" && report.Incarnation != one.Incarnation: // empty: of the bootstrap, and it was about to leave
		return api.Errorf(api.Unavailable, "replica %s has another data directory than when it was added: remove it (chubbyctl cell remove), and add another under a new id", one.ID)
	case !report.Begun:
		return api.Errorf(api.Unavailable, "replica %s has not noted yet that it holds data", one.ID)
	}
	want := r.raft.LastIndex()
	is, answers := r.ask(ctx, []raft.Server{{ID: raft.ServerID(one.ID), Address: raft.ServerAddress(one.Raft)}}, memberProbe)[one.ID]
	if !answers {
		return api.Errorf(api.Unavailable, "replica %s does not answer", one.ID)
	}
	if is.Last+nearlyAll < want {
		return api.Errorf(api.Unavailable, "replica %s holds the log up to entry %d, of %d", one.ID, is.Last, want)
	}
	return nil
}

// canGo returns nil if a majority of the remaining voters answers now.
func (r *Replica) canGo(ctx context.Context, one raftfsm.Member, servers []raft.Server) error {
	voters, answer := r.wouldStay(ctx, one.ID, servers)
	//mutant: if answer < 0 { //by TestNobodyLeavesWithoutAMajority of ./cell
	if answer <= voters/2 {
		return api.Errorf(api.Unavailable, "of the %d replicas that would stay %d answer, which is no majority; 'chubbyctl cell remove %s --cancel' has it stay", voters, answer, one.ID)
	}
	return nil
}

// MayLeave implements wire.Replica. It accepts replicas outside the cell, and the last one: the log rejects
// those.
func (s served) MayLeave(ctx context.Context, id string, joined bool) error {
	roster := s.r.fsm.State().Roster
	if one, known := roster.Find(id); !s.r.isConfigured(id) || known && one.Phase != raftfsm.Settled {
		return nil
	}
	voters, answer := s.r.wouldStay(ctx, id, s.r.servers())
	if joined {
		voters, answer = voters+1, answer+1
	}
	if voters > 0 && answer <= voters/2 {
		return &refusal.Refusal{Cause: refusal.MemberNeeded, Path: id, Used: int64(answer), Allowed: int64(voters)}
	}
	return nil
}

// wouldStay returns how many other replicas vote, and how many of these answer now.
func (r *Replica) wouldStay(ctx context.Context, without string, servers []raft.Server) (voters, answer int) {
	var stay []raft.Server
	for _, s := range servers {
		if s.Suffrage != raft.Voter || string(s.ID) == without {
			continue
		}
		if voters++; string(s.ID) == r.cfg.ID {
			answer++
		} else {
			stay = append(stay, s)
		}
	}
	return voters, answer + len(r.ask(ctx, stay, memberProbe))
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
