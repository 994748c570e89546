package cell

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
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

// membership changes the cell's replicas.
type membership struct {
	*mastership
	handOvers *handOvers
	absences  *absences
	stuck     atomic.Pointer[stuckChange] // nil unless this is the master, and a change of the replicas is blocked
}

// stuckChange says why a change of the cell's replicas is blocked.
type stuckChange struct{ id, why string }

// followRoster makes Raft's configuration follow the roster while this replica is the master.
func (c *membership) followRoster(ctx context.Context) {
	var told reminder
	var stepped uint64 // the roster's version at this replica's last change of Raft's configuration
	for range ticks(ctx, rosterEvery) {
		if me := c.stores.Identity().Get(); me.Joined && !me.Begun && c.raft.LastIndex() > 0 {
			if err := c.stores.Identity().HoldsData(); err != nil {
				c.fatal(err)
				return
			}
		}
		m := c.master.Load()
		if m == nil {
			c.stuck.Store(nil)
			continue
		}
		roster := c.fsm.State().Roster
		one, busy := roster.Unsettled()
		if !busy {
			c.stuck.Store(nil)
			if err := c.useSpare(ctx, m, roster); err != nil && told.due(c.clock(), err) {
				c.log.Warn("no spare can take the place of a replica that is dead", "event", "spare_missing", "error", err)
			}
			continue
		}
		err := c.takeStep(ctx, m, one, roster.Version == stepped, func() { stepped = roster.Version })
		if err == nil {
			c.stuck.Store(nil)
			continue
		}
		c.stuck.Store(&stuckChange{id: one.ID, why: err.Error()})
		if told.due(c.clock(), err) {
			c.log.Info("a change of the cell's replicas waits", "event", "member_waits", "member", one.ID, "phase", one.Phase.String(), "error", err)
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
func (c *membership) takeStep(ctx context.Context, m *master.Master, one raftfsm.Member, stepped bool, step func()) error {
	index, err := c.configuredAt()
	if err != nil {
		return err
	}
	servers := c.servers() // without its index: hashicorp/raft v1.7.3 leaves it 0, which matches any configuration
	suffrage := raft.ServerSuffrage(-1)
	for _, s := range servers {
		if string(s.ID) == one.ID {
			suffrage = s.Suffrage
		}
	}
	if term := c.raft.CurrentTerm(); term != uint64(m.Epoch()) {
		return api.Errorf(api.Unavailable, "another master has begun, in epoch %d", term)
	}
	id, address := raft.ServerID(one.ID), raft.ServerAddress(one.Raft)
	switch {
	case one.Phase == raftfsm.Joining && suffrage == -1:
		if err := c.raft.AddNonvoter(id, address, index, configureWait).Error(); err != nil {
			return err
		}
		c.log.Info("a replica joins the cell, without a vote", "event", "member_joins", "member", one.ID, "address", one.Raft)
		return nil
	case one.Phase == raftfsm.Joining && suffrage == raft.Nonvoter:
		if err := c.hasCaughtUp(ctx, one); err != nil {
			return err
		}
		if err := c.raft.AddVoter(id, address, index, configureWait).Error(); err != nil {
			return err
		}
		step()
		c.log.Info("a replica has caught up, and has a vote", "event", "member_votes", "member", one.ID)
		return nil
	case one.Phase == raftfsm.Joining && !stepped:
		if err := c.raft.AddVoter(id, address, index, configureWait).Error(); err != nil { // it keeps its vote
			return err
		}
		step()
		return nil
	case one.Phase == raftfsm.Leaving && one.ID == c.cfg.ID:
		return c.handOvers.begin(ctx, "") // the next master continues
	case one.Phase == raftfsm.Leaving && (suffrage != -1 || !stepped):
		if suffrage != -1 {
			if err := c.canGo(ctx, one, servers); err != nil {
				return err
			}
		}
		if err := c.raft.RemoveServer(id, index, configureWait).Error(); err != nil {
			return err
		}
		step()
		if suffrage != -1 {
			c.log.Info("a replica leaves the cell", "event", "member_leaves", "member", one.ID)
		}
		return nil
	}
	_, err = m.SettleMember(ctx, raftfsm.SettleMember{ID: one.ID, Phase: one.Phase})
	return err
}

// configuredAt returns the index of the entry with Raft's configuration, as applied here. Raft rejects a step
// that names an older one than its newest.
func (c *membership) configuredAt() (uint64, error) {
	index := c.fsm.Configured()
	snapshots, err := c.stores.Snapshots().List()
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
func (c *membership) hasCaughtUp(ctx context.Context, one raftfsm.Member) error {
	report, err := c.port.AskBootstrap(identity.Member{ID: one.ID, Raft: one.Raft})
	switch {
	case err != nil:
		return err
	case one.Incarnation != "" && report.Incarnation != one.Incarnation: // empty: of the bootstrap, and it was about to leave
		return api.Errorf(api.Unavailable, "replica %s has another data directory than when it was added: remove it (chubbyctl cell remove), and add another under a new id", one.ID)
	case !report.Begun:
		return api.Errorf(api.Unavailable, "replica %s has not noted yet that it holds data", one.ID)
	}
	want := c.raft.LastIndex()
	is, answers := c.ask(ctx, []raft.Server{{ID: raft.ServerID(one.ID), Address: raft.ServerAddress(one.Raft)}}, memberProbe)[one.ID]
	if !answers {
		return api.Errorf(api.Unavailable, "replica %s does not answer", one.ID)
	}
	if is.Last+nearlyAll < want {
		return api.Errorf(api.Unavailable, "replica %s holds the log up to entry %d, of %d", one.ID, is.Last, want)
	}
	return nil
}

// canGo returns nil if a majority of the remaining voters answers now.
func (c *membership) canGo(ctx context.Context, one raftfsm.Member, servers []raft.Server) error {
	voters, answer := c.wouldStay(ctx, one.ID, servers)
	//mutant: if answer < 0 { //by TestNobodyLeavesWithoutAMajority of ./cell
	if answer <= voters/2 {
		return api.Errorf(api.Unavailable, "of the %d replicas that would stay %d answer, which is no majority; 'chubbyctl cell remove %s --cancel' has it stay", voters, answer, one.ID)
	}
	return nil
}

// wouldStay returns how many other replicas vote, and how many of these answer now.
func (c *membership) wouldStay(ctx context.Context, without string, servers []raft.Server) (voters, answer int) {
	var stay []raft.Server
	for _, s := range servers {
		if s.Suffrage != raft.Voter || string(s.ID) == without {
			continue
		}
		if voters++; string(s.ID) == c.cfg.ID {
			answer++
		} else {
			stay = append(stay, s)
		}
	}
	return voters, answer + len(c.ask(ctx, stay, memberProbe))
}

// useSpare lets a spare replace a replica that has been dead for Config.ReplaceAfter (Chubby §2.2). The steps
// are those of any change of members. A replica that returns before the spare has joined still leaves.
func (c *membership) useSpare(ctx context.Context, m *master.Master, roster raftfsm.Roster) error {
	spares := roster.Spares()
	if len(spares) == 0 {
		return nil
	}
	var voters []raft.Server
	for _, s := range c.servers() {
		if one, known := roster.Find(string(s.ID)); known && one.Phase == raftfsm.Settled && s.Suffrage == raft.Voter {
			voters = append(voters, s)
		}
	}
	dead, absent := c.absences.longest(voters)
	//mutant: if dead == "" || absent < compareEvery { //by TestSpare of ./cell
	if dead == "" || absent < c.cfg.ReplaceAfter {
		return nil
	}
	var err error
	for _, spare := range spares {
		//mutant: if err = nil; err == nil { //by TestSpareThatCannot of ./cell
		if err = c.standsBy(spare, m.State().Level); err == nil {
			settled, err := m.SettleMember(ctx, raftfsm.SettleMember{ID: spare.ID, Phase: raftfsm.Standby, Replaces: dead})
			if err == nil && !settled {
				return nil // another change was decided meanwhile
			}
			c.auditSpare(spare, dead, absent, err)
			if err == nil {
				c.log.Warn("a replica has not answered for too long: a spare takes its place", "event", "member_replaced", "member", dead, "waited", absent, "spare", spare.ID)
			}
			return err
		}
	}
	return err
}

// auditSpare records a replacement like the operator's call that does the same. There is no principal.
func (c *membership) auditSpare(spare raftfsm.Member, dead string, absent time.Duration, err error) {
	act := audit.Record{
		Call: "ChangeMembers", On: spare.ID + " " + spare.Raft + " " + dead, Code: api.CodeOf(err).String(),
		Reason: fmt.Sprintf("by the cell itself: %s has not answered for %v (replace-after), and a spare stood by", dead, absent),
	}
	if err != nil {
		act.Message = err.Error()
		c.audit.Unknown(act) // useSpare retries at once, and the first attempt may have succeeded
		return
	}
	//mutant: _ = act //by TestSpareIsAudited of ./cell
	c.audit.Act(act)
}

// standsBy returns nil if a spare waits to be added, and can follow the cell.
func (c *membership) standsBy(spare raftfsm.Member, level int) error {
	report, err := c.port.AskBootstrap(identity.Member{ID: spare.ID, Raft: spare.Raft})
	switch {
	case err != nil:
		return err
	case !report.Joins || report.Incarnation != spare.Incarnation:
		return api.Errorf(api.Unavailable, "the spare %s does not stand by any more with the data directory that it was added with: remove it (chubbyctl cell remove), and add another under a new id", spare.ID)
	case report.MaxLevel < level:
		return api.Errorf(api.Unavailable, "the spare %s knows feature levels up to %d, and the cell is at %d: start it with the version of the others", spare.ID, report.MaxLevel, level)
	}
	return nil
}

// compareEvery is the interval of questions to every other replica.
const compareEvery = 5 * time.Second

// absences counts, for every other replica, probeOthers' successive questions without an answer. It counts
// questions, not time: a suspended machine has asked nothing. Any goroutine may use it.
type absences struct {
	mu         sync.Mutex
	unanswered map[string]int // by the ID; only those asked last time
}

// asking records that these replicas are asked, and drops all others.
func (a *absences) asking(ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := make(map[string]int, len(ids))
	for _, id := range ids {
		now[id] = a.unanswered[id] + 1
	}
	a.unanswered = now
}

// heard records an answer.
func (a *absences) heard(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, asked := a.unanswered[id]; asked {
		//mutant: _ = id //by TestSpare of ./cell
		a.unanswered[id] = 0
	}
}

// longest returns the replica with the longest absence, and the absence at least.
func (a *absences) longest(of []raft.Server) (id string, absent time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := 1 // the last question may still be pending
	for _, s := range of {
		if n := a.unanswered[string(s.ID)]; n > most {
			id, most = string(s.ID), n
		}
	}
	return id, time.Duration(most-1) * compareEvery
}
