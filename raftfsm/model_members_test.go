package raftfsm_test

import (
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// modelReplica is one of the cell's replicas.
type modelReplica struct {
	id, raft, replaces string
	phase              string
}

// changed is who decided on the last change, and when.
type changed struct {
	by   string
	unix int64
}

// changeMembers decides on a change of the replicas.
func (m *model) changeMembers(c *raftfsm.ChangeMembers) api.Code {
	if !m.operates(m.principal(c.Mutation.Session)) {
		return api.PermissionDenied
	}
	list := append([]modelReplica(nil), m.replicas...)
	if len(list) == 0 {
		for _, f := range c.Founders {
			list = append(list, modelReplica{id: f.ID, raft: f.Raft, phase: "member"})
		}
	}
	asked := 0
	for _, one := range []bool{c.Add != nil, c.Remove != "", c.Keep != ""} {
		if one {
			asked++
		}
	}
	if len(list) == 0 || asked != 1 {
		return api.InvalidArgument
	}
	if c.Keep != "" {
		at := slices.IndexFunc(list, func(r modelReplica) bool { return r.id == c.Keep && r.phase == "leaving" })
		if at < 0 {
			return api.NotFound
		}
		if beside := slices.DeleteFunc(append([]modelReplica(nil), list...), func(r modelReplica) bool { return r.phase != "member" && r.phase != "spare" }); len(beside) >= raftfsm.MaxMembers {
			return api.QuotaExceeded
		}
		list[at].phase = "joining"
		m.replicas, m.changed = list, changed{m.principal(c.Mutation.Session), m.wall}
		return api.OK
	}
	id, raft := c.Remove, ""
	if c.Add != nil {
		if id, raft = c.Add.ID, c.Add.Raft; c.Add.Incarnation == "" || c.Add.Phase == raftfsm.Standby && c.Add.Replaces != "" {
			return api.InvalidArgument
		}
	}
	at, members, busy := -1, 0, ""
	taken, replaceable := false, false
	for i, r := range list {
		switch r.phase {
		case "member":
			members++
			replaceable = replaceable || c.Add != nil && r.id == c.Add.Replaces
		case "joining", "leaving":
			busy = r.id
		}
		taken = taken || r.raft == raft && r.phase != "left"
		if r.id == id {
			at = i
		}
	}
	if c.Add != nil {
		switch {
		case at >= 0, busy == "" && taken:
			return api.Exists
		case busy != "":
			return api.Unavailable
		case c.Add.Replaces != "" && !replaceable:
			return api.NotFound
		}
		phase := "joining"
		if c.Add.Phase == raftfsm.Standby {
			phase = "spare"
		}
		m.replicas = append(list, modelReplica{id: id, raft: raft, replaces: c.Add.Replaces, phase: phase})
		m.changed = changed{m.principal(c.Mutation.Session), m.wall}
		return api.OK
	}
	switch {
	case at < 0 || list[at].phase == "left":
		return api.NotFound
	case busy != "" && (busy != id || list[at].phase == "leaving"):
		return api.Unavailable
	case list[at].phase == "member" && members == 1:
		return api.InvalidArgument
	}
	if list[at].phase == "spare" {
		list[at].phase = "left"
	} else {
		list[at].phase = "leaving"
	}
	m.replicas, m.changed = list, changed{m.principal(c.Mutation.Session), m.wall}
	return api.OK
}

// settleMember notes what Raft has done.
func (m *model) settleMember(c *raftfsm.SettleMember) {
	busy, replaceable := false, false
	for _, r := range m.replicas {
		busy = busy || r.phase == "joining" || r.phase == "leaving"
		replaceable = replaceable || r.phase == "member" && r.id == c.Replaces
	}
	for i := range m.replicas {
		r := &m.replicas[i]
		if r.id != c.ID || r.phase != c.Phase.String() {
			continue
		}
		switch r.phase {
		case "leaving":
			r.phase = "left"
		case "spare":
			if replaceable && !busy {
				r.phase, r.replaces = "joining", c.Replaces
				m.changed = changed{"", m.wall}
			}
		case "joining":
			replaced := r.replaces
			r.phase, r.replaces = "member", ""
			for j := range m.replicas {
				if old := &m.replicas[j]; old.id == replaced && old.phase == "member" {
					old.phase = "leaving"
				}
			}
		}
		return
	}
}

// viewReplicas is what can be seen of the roster.
func (m *model) viewReplicas() (lines []string) {
	for _, r := range m.replicas {
		lines = append(lines, fmt.Sprintf("replica %s %s %s %q", r.id, r.raft, r.phase, r.replaces))
	}
	if len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("changed by %q at %d", m.changed.by, m.changed.unix))
	}
	return lines
}

func viewRoster(r raftfsm.Roster) (lines []string) {
	for _, m := range r.Members {
		lines = append(lines, fmt.Sprintf("replica %s %s %s %q", m.ID, m.Raft, m.Phase, m.Replaces))
	}
	if len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("changed by %q at %d", r.Author, r.SinceUnix))
	}
	return lines
}

// changeMembers returns a change of the replicas, or what the master notes of one.
func (d *driver) changeMembers() raftfsm.Command {
	id := func() string { return fmt.Sprint("r", d.pick(7)) }
	if d.rarely(2) {
		return raftfsm.Command{SettleMember: &raftfsm.SettleMember{ID: id(), Phase: raftfsm.MemberPhase(1 + d.pick(5)), Replaces: id()}}
	}
	c := &raftfsm.ChangeMembers{Mutation: d.mutation(d.session())}
	for i := range d.pick(4) {
		c.Founders = append(c.Founders, raftfsm.Member{ID: fmt.Sprint("r", i), Raft: fmt.Sprint("h", i, ":1")})
	}
	if d.rarely(2) {
		c.Remove = id()
	} else if d.rarely(4) {
		c.Keep = id()
	}
	if c.Remove == "" && c.Keep == "" || d.rarely(20) {
		c.Add = &raftfsm.Member{ID: id(), Raft: fmt.Sprint("h", d.pick(9), ":1"), Client: "h:2", Incarnation: one(&d.choices, "i", "j", "")}
		if d.rarely(2) {
			c.Add.Replaces = id()
		}
		if d.rarely(3) {
			c.Add.Phase = raftfsm.Standby
		}
	}
	return raftfsm.Command{ChangeMembers: c}
}

// modelPast is how many holdings a model remembers: few, so that it has to forget some.
const modelPast = 24

// heldIn returns how holders held a lock which have just let go.
func (m *model) heldIn(mode api.LockMode, broken *refusal.Intervention, left []namespace.Holder) (list []api.Holding) {
	for _, h := range left {
		one := api.Holding{Session: h.Session, Mode: mode, FromUnix: h.SinceUnix, Reason: h.Reason}
		if broken != nil {
			one.End, one.EndedBy, one.EndedWhy = api.ByBreak, broken.Principal, broken.Why
		}
		list = append(list, one)
	}
	return list
}

// note adds them to the result, and remembers them.
func (m *model) note(r *raftfsm.Result, lock namespace.Ref, left []api.Holding, why api.EndReason) {
	n := m.nodes[lock.Name]
	for _, h := range left {
		of := m.clients[h.Session].record
		h.Principal, h.Host, h.PID = of.Principal, of.Host, of.PID
		h.Generation, h.Until, h.ToUnix = n.lock, api.Generation(m.counter), m.wall
		switch by := of.Terminating; {
		case h.End != 0: // broken
		case by != nil:
			h.End, h.EndedBy, h.EndedWhy = api.ByOperator, by.Principal, by.Why
		default:
			h.End = why
		}
		told := h
		r.Left = append(r.Left, namespace.Left{Lock: lock, Holding: &told})
		if m.level < 3 {
			continue
		}
		if _, total := m.pastOf(n.creator); total == 0 {
			delete(m.hands, n.creator)
		}
		if n.past = append(n.past, h); len(n.past) > 16 {
			n.past = n.past[1:]
		}
		m.giveUp()
	}
}

// pastOf returns the nodes of a creator of which something is remembered, by name, and how much of them all.
func (m *model) pastOf(creator string) (those []api.Name, total int) {
	for name, n := range m.nodes {
		if n.creator == creator && len(n.past) > 0 {
			those, total = append(those, name), total+len(n.past)
		}
	}
	slices.Sort(those)
	return those, total
}

// giveUp has, if there is too much, the creator with most forget something: of the node at the hand, or of the next one after it in a circle,
// the oldest.
func (m *model) giveUp() {
	totals := map[string]int{}
	total, creator := 0, ""
	for _, n := range m.nodes {
		totals[n.creator] += len(n.past)
		total += len(n.past)
	}
	if total <= modelPast {
		return
	}
	for one, has := range totals {
		if has > totals[creator] || has == totals[creator] && one < creator {
			creator = one
		}
	}
	those, _ := m.pastOf(creator)
	hand := those[max(0, slices.IndexFunc(those, func(name api.Name) bool { return name > m.hands[creator] }))]
	m.hands[creator] = hand
	m.nodes[hand].past = m.nodes[hand].past[1:]
}
