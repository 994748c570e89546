package cell

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

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

// useSpare lets a spare replace a replica that has been dead for Config.ReplaceAfter (Chubby §2.2). The steps
// are those of any change of members. A replica that returns before the spare has joined still leaves.
func (r *Replica) useSpare(ctx context.Context, m *master.Master, roster raftfsm.Roster) error {
	spares := roster.Spares()
	if len(spares) == 0 {
		return nil
	}
	var voters []raft.Server
	for _, s := range r.servers() {
		if one, known := roster.Find(string(s.ID)); known && one.Phase == raftfsm.Settled && s.Suffrage == raft.Voter {
			voters = append(voters, s)
		}
	}
	dead, absent := r.absences.longest(voters)
	//mutant: if dead == "" || absent < compareEvery { //by TestSpare of ./cell
	if dead == "" || absent < r.cfg.ReplaceAfter {
		return nil
	}
	var err error
	for _, spare := range spares {
		//mutant: if err = nil; err == nil { //by TestSpareThatCannot of ./cell
		if err = r.standsBy(spare, m.State().Level); err == nil {
			settled, err := m.SettleMember(ctx, raftfsm.SettleMember{ID: spare.ID, Phase: raftfsm.Standby, Replaces: dead})
			if err == nil && !settled {
				return nil // another change was decided meanwhile
			}
			r.auditSpare(spare, dead, absent, err)
			if err == nil {
				r.log.Warn("a replica has not answered for too long: a spare takes its place", "event", "member_replaced", "member", dead, "waited", absent, "spare", spare.ID)
			}
			return err
		}
	}
	return err
}

// auditSpare records a replacement like the operator's call that does the same. There is no principal.
func (r *Replica) auditSpare(spare raftfsm.Member, dead string, absent time.Duration, err error) {
	act := audit.Record{
		Call: "ChangeMembers", On: spare.ID + " " + spare.Raft + " " + dead, Code: api.CodeOf(err).String(),
		Reason: fmt.Sprintf("by the cell itself: %s has not answered for %v (replace-after), and a spare stood by", dead, absent),
	}
	if err != nil {
		act.Message = err.Error()
		r.audit.Unknown(act) // useSpare retries at once, and the first attempt may have succeeded
		return
	}
	//mutant: _ = act //by TestSpareIsAudited of ./cell
	r.audit.Act(act)
}

// standsBy returns nil if a spare waits to be added, and can follow the cell.
func (r *Replica) standsBy(spare raftfsm.Member, level int) error {
	report, err := r.port.AskBootstrap(identity.Member{ID: spare.ID, Raft: spare.Raft})
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
