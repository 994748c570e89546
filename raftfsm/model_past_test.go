package raftfsm_test

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// modelPast is how many holdings a model remembers: few, so that it has to forget some.
const modelPast = 24

// heldIn returns how holders held a lock which have just let go.
func (m *model) heldIn(mode api.LockMode, left []namespace.Holder) (list []api.Holding) {
	for _, h := range left {
		list = append(list, api.Holding{Session: h.Session, Mode: mode, FromUnix: h.SinceUnix, Reason: h.Reason})
	}
	return list
}

// note remembers them.
func (m *model) note(n *modelNode, left []api.Holding, why api.EndReason) {
	for _, h := range left {
		if m.level < 3 {
			return
		}
		of := m.clients[h.Session].record
		h.Principal, h.Host, h.PID = of.Principal, of.Host, of.PID
		h.Generation, h.Until, h.ToUnix, h.End = n.lock, api.Generation(m.counter), m.wall, why
		if n.past = append(n.past, h); len(n.past) > 16 {
			n.past = n.past[1:]
		}
		m.giveUp()
	}
}

// giveUp has the node at the hand, or the next one after it in a circle, forget its oldest, if there is too much.
func (m *model) giveUp() {
	var those []api.Name
	total := 0
	for name, n := range m.nodes {
		if len(n.past) > 0 {
			those, total = append(those, name), total+len(n.past)
		}
	}
	if total <= modelPast {
		return
	}
	slices.Sort(those)
	m.hand = those[max(0, slices.IndexFunc(those, func(name api.Name) bool { return name > m.hand }))]
	m.nodes[m.hand].past = m.nodes[m.hand].past[1:]
}
