package raftfsm_test

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

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
