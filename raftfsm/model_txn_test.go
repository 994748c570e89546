package raftfsm_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// txn does the operations one after the other as clients do alone, and puts everything back as it was if
// one is refused.
func (m *model) txn(c *raftfsm.Txn) raftfsm.Result {
	principal := m.principal(c.Mutation.Session)
	for i, condition := range c.Conditions {
		if answer := m.condition(condition, principal); answer.Code() != api.OK {
			return atStep(i+1, answer)
		}
	}
	nodes, hands := map[api.Name]*modelNode{}, maps.Clone(m.hands)
	for name, n := range m.nodes {
		kept := *n
		nodes[name] = &kept
	}
	var r raftfsm.Result
	for i, o := range c.Operations {
		one := m.operation(o, c.Mutation.Session, principal)
		if one.Code() != api.OK {
			m.nodes, m.hands = nodes, hands
			return atStep(len(c.Conditions)+i+1, one.Answer)
		}
		r.Changes, r.Dying = append(r.Changes, one.Changes...), append(r.Dying, one.Dying...)
		written := raftfsm.Stat{}
		if one.Stat != nil {
			written = *one.Stat
			written.Name = ""
		}
		if r.Written == nil {
			r.Written = &[]raftfsm.Stat{}
		}
		*r.Written = append(*r.Written, written)
	}
	return r
}

// atStep is a result that says which step of a transaction was refused.
func atStep(step int, a raftfsm.Answer) raftfsm.Result {
	a.Refusal.Step = step
	return raftfsm.Result{Answer: a}
}

func (m *model) condition(c raftfsm.Condition, principal string) raftfsm.Answer {
	if c.Sequencer != nil && !m.checkPreconditions([]raftfsm.Precondition{*c.Sequencer}) {
		return refused(api.BadSequencer)
	}
	if c.Content == nil && c.Instance == 0 && !c.Exists {
		return refused(api.OK)
	}
	if !wellFormed(c.Name) {
		return refused(api.InvalidArgument)
	}
	nearest := c.Name
	for m.nodes[nearest] == nil {
		nearest = above(nearest)
	}
	if shown := m.nodes[nearest]; !m.permits(shown, principal, namespace.ToRead) && !m.permits(shown, principal, namespace.ToWrite) {
		return refused(api.PermissionDenied)
	}
	n := m.nodes[c.Name]
	if n == nil {
		if c.Content != nil && *c.Content == 0 && !c.Exists && c.Instance == 0 {
			return refused(api.OK)
		}
		return mismatch(0)
	}
	if n.dying() || c.Content != nil && *c.Content != n.content || c.Instance != 0 && c.Instance != n.instance {
		return mismatch(n.content)
	}
	return refused(api.OK)
}

// operation does an operation with the parts of the commands that do the same through a handle.
func (m *model) operation(o raftfsm.Operation, by api.SessionID, principal string) raftfsm.Result {
	n := m.nodes[o.Name]
	switch {
	case o.Delete && (n == nil || n.dying()):
		return raftfsm.Result{Answer: refused(api.NotFound)}
	case o.Delete && !m.permits(n, principal, namespace.ToWrite):
		return raftfsm.Result{Answer: refused(api.PermissionDenied)}
	case o.Delete:
		return m.delete(&raftfsm.Delete{Node: namespace.Ref{Name: o.Name, Instance: n.instance}})
	}
	open := raftfsm.Open{Name: o.Name, Create: o.Create, Kind: api.File, Contents: o.Contents, Rights: namespace.ToWrite}
	open.Mutation.Session = by
	if n == nil {
		r := m.open(&open)
		r.Created = false
		return r
	}
	if code := m.mayOpen(n, principal, &open); code != api.OK {
		return raftfsm.Result{Answer: refused(code)}
	}
	return m.setContents(&raftfsm.SetContents{Node: namespace.Ref{Name: o.Name, Instance: n.instance}, Contents: o.Contents})
}

// txn makes a transaction, mostly one that is done.
func (d *driver) txn() raftfsm.Command {
	c := raftfsm.Txn{Mutation: d.mutation(d.session())}
	for range d.pick(3) {
		c.Conditions = append(c.Conditions, d.condition())
	}
	for range cmp.Or(d.pick(4), 1) {
		o := raftfsm.Operation{Name: d.name(), Create: one(&d.choices, api.MayCreate, api.MayCreate, api.MayCreate, api.MustCreate, api.MustExist, 3)}
		if d.rarely(3) {
			o = raftfsm.Operation{Name: o.Name, Delete: true}
			if there := d.ordinary(); d.m.nodes[o.Name] == nil && len(there) > 0 {
				o.Name = there[len(there)-1-d.pick(min(len(there), 3))] // without children, often
			}
		} else {
			o.Contents = d.contents(o.Name)
		}
		c.Operations = append(c.Operations, o)
	}
	if d.rarely(20) {
		c.Operations = nil
	}
	return raftfsm.Command{Txn: &c}
}

// condition makes a condition, mostly one that holds.
func (d *driver) condition() (c raftfsm.Condition) {
	c.Name = d.name()
	if names := slices.Sorted(maps.Keys(d.m.nodes)); d.m.nodes[c.Name] == nil && len(names) > 0 && d.rarely(2) {
		c.Name = names[d.pick(len(names))]
	}
	is := modelNode{}
	if n := d.m.nodes[c.Name]; n != nil {
		is = *n
	}
	off := api.Generation(0)
	if d.rarely(8) {
		off = 1
	}
	switch d.pick(6) {
	case 0, 1:
		content := is.content + off
		c.Content = &content
	case 2:
		c.Instance = is.instance + off
	case 3:
		c.Exists = true
	case 4:
		if list := d.preconditions(); len(list) > 0 {
			c.Sequencer = &list[0]
		}
	case 5:
		content := is.content
		c.Content, c.Instance, c.Exists = &content, is.instance+off, d.rarely(2)
	}
	return c
}
