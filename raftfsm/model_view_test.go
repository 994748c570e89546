package raftfsm_test

import (
	"cmp"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// view returns everything in a state, one line each.
func (m *model) view() []string {
	lines := []string{fmt.Sprintf("cell %s of %q epoch %d level %d counter %d sessions %d", m.lineage, m.origin, m.epoch, m.level, m.counter, len(m.clients))}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		s := m.stat(name)
		openers := slices.SortedFunc(maps.Keys(n.openers), compareOwners)
		used := namespace.Usage{}
		if n.limit != used {
			used = m.below(name)
		}
		lines = append(lines, fmt.Sprintf("node %+v %q %v %+v %v %v %q %v %v", *s, n.contents, n.mode, n.holders, openers, n.revoked, n.creator, n.limit, used))
		for _, h := range n.past {
			lines = append(lines, fmt.Sprintf("past %+v", h))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.delays)) {
		lines = append(lines, fmt.Sprintf("delay %q %+v", name, m.delays[name]))
	}
	for _, id := range slices.Sorted(maps.Keys(m.clients)) {
		s := m.clients[id]
		var open []session.Request[raftfsm.Answer]
		for n := api.RequestNumber(1); n <= s.highest; n++ {
			if !s.givenUp[n] {
				a, done := s.answers[n]
				open = append(open, session.Request[raftfsm.Answer]{Number: n, Done: done, Hash: a.hash, Answer: a.answer})
			}
		}
		lines = append(lines, viewSession(s.record, s.highest, open, m.sessionsOf(s.record.Principal), m.usage(s.record.Principal)))
	}
	for _, principal := range slices.Sorted(maps.Keys(m.quotas)) {
		lines = append(lines, fmt.Sprintf("quota %q %+v", principal, m.quotas[principal]))
	}
	lines = append(lines, m.viewReplicas()...)
	if m.restored != "" {
		lines = append(lines, m.restored)
	}
	if g := m.staged; g != nil {
		lines = append(lines, fmt.Sprintf("restoring %v %v since %d", g.by, g.sealed, g.since))
	}
	return lines
}

func viewSession(record session.Session[raftfsm.Answer], highest api.RequestNumber, open []session.Request[raftfsm.Answer], of int, used namespace.Usage) string {
	record.HighestIssued, record.Open = 0, nil
	var b strings.Builder
	fmt.Fprintf(&b, "session %+v highest %d of %d using %v:", record, highest, of, used)
	for _, r := range open {
		a := silent(r.Answer)
		stat := "-"
		if a.Stat != nil {
			stat = fmt.Sprintf("%+v", *a.Stat)
		}
		if a.Written != nil {
			stat = fmt.Sprintf("%+v", *a.Written)
		}
		no := "-"
		if a.Refusal != nil {
			no = fmt.Sprint(a.Code(), a.Refusal.Holders, a.Refusal.HolderCount, a.Refusal.Current, a.Refusal.Step)
		}
		a.Stat, a.Written, a.Refusal = nil, nil, nil
		fmt.Fprintf(&b, " [%d %v %d %+v %s %s]", r.Number, r.Done, r.Hash, a, stat, no)
	}
	return b.String()
}

func (m *model) sessionsOf(principal string) (n int) {
	for _, s := range m.clients {
		if s.record.Principal == principal {
			n++
		}
	}
	return n
}

// view returns everything in a state, in the form of model.view.
func view(s *raftfsm.State) []string {
	lines := []string{fmt.Sprintf("cell %s of %q epoch %d level %d counter %d sessions %d", s.CellID, s.Origin, s.Epoch, s.Level, s.Counter, s.Sessions.Len())}
	var nodes []*namespace.Node
	for n := range s.Tree.All() {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *namespace.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		var quota namespace.Quota
		if n.Quota != nil {
			quota = *n.Quota
		}
		stat := raftfsm.Stat{
			Name: n.Name, Kind: n.Kind, Ephemeral: n.Ephemeral, Instance: n.Instance, Content: n.Content, Lock: n.Lock, ACLs: n.ACLs,
			Checksum: n.Checksum, Size: len(n.Contents), Children: n.Children, ACL: n.ACL, ModifiedUnix: n.ModifiedUnix,
		}
		lines = append(lines, fmt.Sprintf("node %+v %q %v %+v %v %v %q %v %v", stat, n.Contents, n.Mode, n.Holders, n.Openers, n.Revoked, n.Creator, quota.Limit, quota.Used))
		for _, h := range s.Ended(n) {
			lines = append(lines, fmt.Sprintf("past %+v", *h))
		}
	}
	for name, d := range s.Tree.Delays() {
		lines = append(lines, fmt.Sprintf("delay %q %+v", name, d))
	}
	for one := range s.Sessions.All() {
		lines = append(lines, viewSession(*one, one.HighestIssued, one.Open, s.Sessions.Of(one.Principal), s.Tree.Usage(one.Principal)))
	}
	for principal, q := range s.Quotas() {
		lines = append(lines, fmt.Sprintf("quota %q %+v", principal, q))
	}
	lines = append(lines, viewRoster(s.Roster)...)
	if s.Restored != nil {
		lines = append(lines, fmt.Sprintf("restored %+v", *s.Restored))
	}
	if by, sealed := s.Restoring(); by != 0 {
		lines = append(lines, fmt.Sprintf("restoring %v %v since %d", by, sealed, s.RestoringSince()))
	}
	return lines
}

func (m *model) stat(name api.Name) *raftfsm.Stat {
	n := m.nodes[name]
	return &raftfsm.Stat{
		Name: name, Kind: n.kind, Ephemeral: n.ephemeral, Instance: n.instance, Content: n.content, Lock: n.lock, ACLs: n.acls,
		Checksum: crc64.Checksum([]byte(n.contents), crc64.MakeTable(crc64.ECMA)), Size: len(n.contents), Children: m.children(name), ACL: n.acl, ModifiedUnix: n.modified,
	}
}

// silent reduces a refusal to what the model says of it.
func silent(a raftfsm.Answer) raftfsm.Answer {
	if a.Refusal == nil {
		return a
	}
	told := refusal.Refusal{Cause: causeOf(a.Code()), Holders: a.Refusal.Holders, HolderCount: a.Refusal.HolderCount, Step: a.Refusal.Step}
	if a.Code() == api.GenerationMismatch {
		told.Current = a.Refusal.Current
	}
	if len(told.Holders) == 0 {
		told.Holders = nil
	}
	a.Refusal = &told
	return a
}

func compareOwners(a, b namespace.Owner) int {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Handle, b.Handle))
}

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
