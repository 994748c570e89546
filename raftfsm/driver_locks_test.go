package raftfsm_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// claim asks for a lock, through a handle that has the node open if that is necessary.
func (d *driver) claim(ref namespace.Ref) raftfsm.Claim {
	by := namespace.Owner{Session: d.session(), Handle: api.HandleID(1 + d.pick(2))}
	if n := d.m.nodes[ref.Name]; n != nil && n.ephemeral {
		by = d.owner(ref)
	}
	c := raftfsm.Claim{
		Mutation: d.mutation(by.Session), Handle: by.Handle, Mode: one(&d.choices, api.Exclusive, api.Shared, api.Shared), Try: d.rarely(3),
		Delay: one(&d.choices, 0, time.Second, 10*time.Second, time.Minute), Preconditions: d.preconditions(),
		DeclaredOwner: one(&d.choices, "", "", "", "owner"),
	}
	if d.rarely(60) {
		c.Mode, c.Delay, c.Reason = api.LockMode(d.pick(4)), one(&d.choices, 0, -1, time.Hour), strings.Repeat("x", 200+d.pick(100))
	}
	if !c.Try {
		d.waiting = append(d.waiting, driverWaiter{lock: ref, claim: c})
	}
	return c
}

// successors returns claims that wait for a lock, in their order; some are left
// out, and sometimes there is one that does not wait.
func (d *driver) successors(name api.Name) (claims []raftfsm.Claim) {
	for _, w := range d.waiting {
		if w.lock.Name == name && !d.rarely(6) {
			claims = append(claims, w.claim)
		}
	}
	if n := d.m.nodes[name]; n != nil && d.rarely(6) {
		claims = append(claims, d.claim(namespace.Ref{Name: name, Instance: n.instance}))
	}
	return claims
}

// successions returns the successions for a command that frees the lock of that
// name; sometimes there is one of another lock, too.
func (d *driver) successions(name api.Name) []raftfsm.Succession {
	n := d.m.nodes[name]
	if n == nil {
		return nil
	}
	list := []raftfsm.Succession{{Lock: namespace.Ref{Name: name, Instance: n.instance}, Claims: d.successors(name)}}
	if other := d.ref(); d.rarely(8) {
		list = append(list, raftfsm.Succession{Lock: other, Claims: d.successors(other.Name)})
	}
	return list
}

func (d *driver) acquire() raftfsm.Command {
	ref := d.ref()
	c := raftfsm.Acquire{Succession: raftfsm.Succession{Lock: ref, Claims: []raftfsm.Claim{d.claim(ref)}}}
	if d.rarely(4) {
		c.Claims = append(c.Claims, d.claim(ref))
	}
	if d.rarely(4) {
		c.Claims = append(d.successors(ref.Name), c.Claims...)
	}
	return raftfsm.Command{Acquire: &c}
}

// locked returns a node whose lock is held, if there is one.
func (d *driver) locked(revoked bool) namespace.Ref {
	var held []namespace.Ref
	for _, name := range slices.Sorted(maps.Keys(d.m.nodes)) {
		if n := d.m.nodes[name]; len(n.holders) > 0 && (!revoked || n.revoked != nil) {
			held = append(held, namespace.Ref{Name: name, Instance: n.instance})
		}
	}
	if len(held) == 0 || d.rarely(12) {
		return d.ref()
	}
	return held[d.pick(len(held))]
}

func (d *driver) release() raftfsm.Command {
	ref := d.locked(false)
	by := d.owner(ref)
	c := raftfsm.Release{Mutation: d.mutation(by.Session), Lock: ref, Handle: by.Handle, Successions: d.successions(ref.Name)}
	if n := d.m.nodes[ref.Name]; n != nil {
		c.Generation = n.lock
	}
	if d.rarely(12) {
		c.Generation--
	}
	return raftfsm.Command{Release: &c}
}

// letGo closes, deletes, or removes a node.
func (d *driver) letGo(kind int) raftfsm.Command {
	ref := d.ref()
	by := d.owner(ref)
	switch kind % 4 {
	case 0:
		if ref.Name == "/acl" || ref.Name == "/acl/everyone" || !d.rarely(2) {
			break // otherwise nothing would be left soon
		}
		return raftfsm.Command{Delete: &raftfsm.Delete{Mutation: d.mutation(by.Session), Node: ref, Handle: by.Handle, Preconditions: d.preconditions()}}
	case 1, 2:
		var dying []namespace.Ref
		for _, name := range slices.Sorted(maps.Keys(d.m.nodes)) {
			if n := d.m.nodes[name]; n.dying() && !d.rarely(3) {
				dying = append(dying, namespace.Ref{Name: name, Instance: n.instance})
			}
		}
		if d.rarely(2) {
			slices.Reverse(dying)
		}
		return raftfsm.Command{Remove: &raftfsm.Remove{Nodes: append(dying, ref)}}
	}
	return raftfsm.Command{Close: &raftfsm.Close{Mutation: d.mutation(by.Session), Node: ref, Handle: by.Handle, Successions: d.successions(ref.Name)}}
}

// loss takes something away from a session.
func (d *driver) loss(kind int) raftfsm.Command {
	why := one(&d.choices, "stuck", "", strings.Repeat("x", api.MaxReason), strings.Repeat("x", api.MaxReason+1))
	switch kind % 8 {
	case 0:
		return raftfsm.Command{Terminate: &raftfsm.Terminate{Mutation: d.mutation(d.session()), Target: d.session(), Why: why}}
	case 1, 2, 3:
		ref := d.locked(false)
		c := raftfsm.Revoke{Mutation: d.mutation(d.session()), Lock: ref, Why: why, Now: d.rarely(3)}
		if c.Now {
			c.Successions = d.successions(ref.Name)
		}
		return raftfsm.Command{Revoke: &c}
	}
	ref := d.locked(true)
	c := raftfsm.Evict{Lock: ref, Holders: []namespace.Owner{d.owner(ref)}, Successions: d.successions(ref.Name)}
	if n := d.m.nodes[ref.Name]; n != nil {
		if c.Generation = n.lock; d.rarely(2) {
			for _, h := range n.holders {
				c.Holders = append(c.Holders, h.Owner)
			}
		}
	}
	if d.rarely(12) {
		c.Generation--
	}
	return raftfsm.Command{Evict: &c}
}

// cancel withdraws a request, mostly one that waits.
func (d *driver) cancel() raftfsm.Command {
	var q session.Mutation
	switch {
	case len(d.waiting) > 0 && !d.rarely(4):
		q = one(&d.choices, d.waiting...).claim.Mutation
	case len(d.sent) > 0 && !d.rarely(4):
		q = *mutationOf(copyOf(one(&d.choices, d.sent...)))
	default:
		q = d.mutation(d.session())
	}
	c := &raftfsm.Cancel{Mutation: q}
	if d.pick(3) == 0 {
		c.Refusal = &refusal.Refusal{Cause: refusal.WaitersComeFirst, Holders: []api.SessionID{1}, HolderCount: 1}
	}
	return raftfsm.Command{Cancel: c}
}

// end ends sessions or a lock-delay.
func (d *driver) end() raftfsm.Command {
	name := d.name()
	if delayed := slices.Sorted(maps.Keys(d.m.delays)); len(delayed) > 0 && d.rarely(2) {
		name = delayed[d.pick(len(delayed))]
		c := raftfsm.EndDelay{Name: name, ID: d.m.delays[name].ID, Successions: d.successions(name)}
		if d.rarely(6) {
			c.ID--
		}
		return raftfsm.Command{EndDelay: &c}
	}
	var c raftfsm.EndSessions
	for range 1 + d.pick(2) {
		id := d.session()
		if s := d.terminating(); s != 0 && !d.rarely(3) {
			id = s
		}
		c.Ends = append(c.Ends, raftfsm.End{Session: id, Reason: one(&d.choices, api.ByExpiry, api.ByClose, api.ByOperator), Acknowledged: d.rarely(4), FailOver: d.rarely(5)})
	}
	c.Successions = d.successions(name)
	if held := d.locked(false); held.Name != name {
		c.Successions = append(c.Successions, d.successions(held.Name)...)
	}
	return raftfsm.Command{EndSessions: &c}
}

// terminating returns a session that is being terminated, or 0.
func (d *driver) terminating() api.SessionID {
	for _, id := range slices.Sorted(maps.Keys(d.m.clients)) {
		if d.m.clients[id].record.Terminating != nil {
			return id
		}
	}
	return 0
}

// mutationOf returns the request that a command does, nil if it does none.
func mutationOf(c raftfsm.Command) *session.Mutation {
	if c.Acquire != nil && len(c.Acquire.Claims) > 0 {
		return &c.Acquire.Claims[0].Mutation
	}
	if what := setField(c); what.IsValid() {
		if m := what.Elem().FieldByName("Mutation"); m.IsValid() {
			return m.Addr().Interface().(*session.Mutation)
		}
	}
	return nil
}
