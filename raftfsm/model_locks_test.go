package raftfsm_test

import (
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

func (m *model) applyToLocks(c raftfsm.Command, wall int64) (r raftfsm.Result) {
	switch {
	case c.Acquire != nil:
		m.grant(&r, c.Acquire.Succession, wall)
		return r
	case c.Close != nil:
		return m.once(c.Close.Mutation, nil, func() raftfsm.Result { return m.close(c.Close, wall) })
	case c.Release != nil:
		return m.once(c.Release.Mutation, nil, func() raftfsm.Result { return m.release(c.Release, wall) })
	case c.Revoke != nil:
		return m.once(c.Revoke.Mutation, nil, func() raftfsm.Result { return m.revoke(c.Revoke, wall) })
	case c.Evict != nil:
		m.evict(&r, c.Evict.Lock, c.Evict.Generation, c.Evict.Holders)
		m.handOver(&r, c.Evict.Successions, wall)
		return r
	case c.EndDelay != nil:
		return m.endDelay(c.EndDelay, wall)
	}
	return raftfsm.Result{Answer: refused(api.InvalidArgument)}
}

func (n *modelNode) holds(by namespace.Owner) bool {
	return slices.ContainsFunc(n.holders, func(h namespace.Holder) bool { return h.Owner == by })
}

func (n *modelNode) lockHeld() raftfsm.Answer {
	a := refused(api.LockHeld)
	a.Refusal.HolderCount = len(n.holders)
	for _, h := range n.holders {
		a.Refusal.Holders = append(a.Refusal.Holders, h.Session)
	}
	return a
}

// checkPreconditions reports whether each sequencer's lock is held so, is not being revoked, and
// has a holder that is not being terminated (Chubby §2.4).
func (m *model) checkPreconditions(preconditions []raftfsm.Precondition) bool {
	for _, p := range preconditions {
		n := m.nodes[p.Lock]
		if n == nil || len(n.holders) == 0 || n.lock != p.Generation || n.mode != p.Mode || n.revoked != nil {
			return false
		}
		if !slices.ContainsFunc(n.holders, func(h namespace.Holder) bool { return m.clients[h.Session].record.Terminating == nil }) {
			return false
		}
	}
	return true
}

// handOver grants the locks that a command freed, and no others, to the named claims.
func (m *model) handOver(r *raftfsm.Result, next []raftfsm.Succession, wall int64) {
	for _, n := range next {
		if slices.Contains(r.Free, n.Lock.Name) {
			m.grant(r, n, wall)
		}
	}
}

func (m *model) grant(r *raftfsm.Result, next raftfsm.Succession, wall int64) {
	for _, c := range next.Claims {
		one := raftfsm.ClaimResult{Owner: namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}, Number: c.Mutation.Number}
		answer, ok := m.begin(c.Mutation)
		if ok {
			answer = refused(api.BadSequencer)
			if m.isSealed() {
				answer = refused(api.InvalidArgument)
			} else if m.checkPreconditions(c.Preconditions) {
				answer, one.Pending = m.acquire(next.Lock, one.Owner, c, wall)
			}
			if !one.Pending {
				m.finish(c.Mutation, answer)
			}
		}
		one.Answer, one.Again = answer, !ok && m.again
		r.Claims = append(r.Claims, one)
	}
}

// acquire grants a lock, or says why not and whether the claim may wait.
func (m *model) acquire(lock namespace.Ref, by namespace.Owner, c raftfsm.Claim, wall int64) (a raftfsm.Answer, wait bool) {
	n := m.resolve(lock)
	if !c.Mode.Valid() || c.Delay < 0 || c.Delay > api.MaxLockDelay || len(c.Reason) > api.MaxReason {
		return refused(api.InvalidArgument), false
	}
	delay, delayed := m.delays[lock.Name]
	switch {
	case n == nil:
		return refused(api.HandleClosed), false
	case n.dying():
		return refused(api.Exists), false
	case n.holds(by):
		return n.lockHeld(), false
	case n.ephemeral && !n.openers[by]:
		return refused(api.HandleClosed), false
	case len(n.holders) > 0 && (n.revoked != nil || n.mode == api.Exclusive || c.Mode == api.Exclusive):
		return n.lockHeld(), !c.Try
	case delayed && (delay.Mode == api.Exclusive || c.Mode == api.Exclusive):
		return refused(api.LockDelayed), !c.Try
	}
	if len(n.holders) == 0 {
		n.lock, n.mode = api.Generation(m.draw()), c.Mode
	}
	n.holders = append(n.holders, namespace.Holder{Owner: by, Delay: c.Delay, Reason: c.Reason, SinceUnix: wall, DeclaredOwner: c.DeclaredOwner})
	return raftfsm.Answer{Generation: n.lock, Lock: lock, Mode: c.Mode, Handle: c.Handle}, false
}

// letGo removes the holders for which goes is true, and returns them.
func (n *modelNode) letGo(goes func(namespace.Owner) bool) (left []namespace.Holder) {
	var stay []namespace.Holder
	for _, h := range n.holders {
		if goes(h.Owner) {
			left = append(left, h)
		} else {
			stay = append(stay, h)
		}
	}
	if n.holders = stay; len(stay) == 0 {
		n.mode, n.revoked = 0, nil
	}
	return left
}

// tell adds what was released of a node to the result.
func (m *model) tell(r *raftfsm.Result, name api.Name, left []namespace.Holder) {
	if _, delayed := m.delays[name]; !delayed && len(left) > 0 {
		r.Free = append(r.Free, name)
	}
	n := m.nodes[name]
	if len(left) > 0 && len(n.holders) == 0 {
		r.Vacant = append(r.Vacant, namespace.Vacancy{Lock: namespace.Ref{Name: name, Instance: n.instance}, Generation: n.lock})
	}
	if n.dying() {
		r.Dying = append(r.Dying, namespace.Ref{Name: name, Instance: n.instance})
	}
}

// close never fails.
func (m *model) close(c *raftfsm.Close, wall int64) (r raftfsm.Result) {
	n, by := m.resolve(c.Node), namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
	if n == nil {
		return r
	}
	mode, broken := n.mode, n.revoked
	left := n.letGo(func(o namespace.Owner) bool { return o == by })
	m.note(&r, c.Node, m.heldIn(mode, broken, left), api.ByClose)
	delete(n.openers, by)
	m.tell(&r, c.Node.Name, left)
	m.handOver(&r, c.Successions, wall)
	return r
}

func (m *model) release(c *raftfsm.Release, wall int64) (r raftfsm.Result) {
	n, by := m.resolve(c.Lock), namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
	switch {
	case n == nil:
		return raftfsm.Result{Answer: refused(api.HandleClosed)}
	case !n.holds(by), n.lock != c.Generation:
		return raftfsm.Result{Answer: refused(api.NotHeld)}
	}
	mode, broken := n.mode, n.revoked
	left := n.letGo(func(o namespace.Owner) bool { return o == by })
	m.note(&r, c.Lock, m.heldIn(mode, broken, left), api.ByClose)
	m.tell(&r, c.Lock.Name, left)
	m.handOver(&r, c.Successions, wall)
	return r
}

// endDelay ends the delay that the master has counted, and no later one.
func (m *model) endDelay(c *raftfsm.EndDelay, wall int64) (r raftfsm.Result) {
	if d, ok := m.delays[c.Name]; !ok || d.ID != c.ID {
		return r
	}
	delete(m.delays, c.Name)
	r.Free = []api.Name{c.Name}
	m.handOver(&r, c.Successions, wall)
	return r
}

// revoke needs the right to change the ACL of the node (decision 10).
func (m *model) revoke(c *raftfsm.Revoke, wall int64) (r raftfsm.Result) {
	n, by := m.resolve(c.Lock), m.principal(c.Mutation.Session)
	switch {
	case n == nil:
		return raftfsm.Result{Answer: refused(api.HandleClosed)}
	case !m.admits(n.acl.Change, by) && !(m.hasOperators() && m.operates(by)):
		return raftfsm.Result{Answer: refused(api.PermissionDenied)}
	case len(c.Why) > api.MaxReason:
		return raftfsm.Result{Answer: refused(api.InvalidArgument)}
	case len(n.holders) == 0:
		return raftfsm.Result{Answer: refused(api.NotHeld)}
	}
	if n.revoked == nil {
		n.revoked = &refusal.Intervention{Principal: by, Why: c.Why}
	}
	var holders []namespace.Owner
	for _, h := range n.holders {
		holders = append(holders, h.Owner)
	}
	r.Revoked = []namespace.Revocation{{Lock: c.Lock, Generation: n.lock, Holders: holders, By: *n.revoked, Reason: api.ByBreak}}
	if c.Now {
		m.evict(&r, c.Lock, n.lock, holders)
		m.handOver(&r, c.Successions, wall)
	}
	return r
}

// evict takes a revoked lock from holders that have acknowledged it, without delay.
func (m *model) evict(r *raftfsm.Result, lock namespace.Ref, generation api.Generation, holders []namespace.Owner) {
	n := m.resolve(lock)
	if n == nil || n.revoked == nil || n.lock != generation {
		return
	}
	mode, broken := n.mode, n.revoked
	left := n.letGo(func(o namespace.Owner) bool { return slices.Contains(holders, o) })
	m.note(r, lock, m.heldIn(mode, broken, left), api.ByBreak)
	if len(left) > 0 && len(n.holders) == 0 {
		r.Vacant = append(r.Vacant, namespace.Vacancy{Lock: lock, Generation: n.lock})
	}
	if _, delayed := m.delays[lock.Name]; len(left) > 0 && !delayed {
		r.Free = append(r.Free, lock.Name)
	}
}

// endSessions releases what the sessions have. Locks of a failed session are delayed if a holder asked for it: in the
// stricter mode of this and an earlier failure, and for the longest time that a failed holder asked for (Chubby §2.4).
func (m *model) endSessions(c *raftfsm.EndSessions, wall int64) (r raftfsm.Result) {
	for _, end := range c.Ends {
		of := m.clients[end.Session]
		if of == nil {
			continue
		}
		if m.staged != nil && m.staged.by == end.Session {
			m.staged = nil
		}
		r.Ended = append(r.Ended, raftfsm.Ended{End: end, Principal: of.record.Principal, Host: of.record.Host, PID: of.record.PID})
		failed := !end.Acknowledged && end.Reason != api.ByClose
		var after []func()
		for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
			after = append(after, m.drop(&r, name, end, failed))
		}
		for _, note := range after {
			note()
		}
		delete(m.clients, end.Session)
	}
	m.handOver(&r, c.Successions, wall)
	return r
}

func (m *model) drop(r *raftfsm.Result, name api.Name, ended raftfsm.End, failed bool) (note func()) {
	n := m.nodes[name]
	mode, broken := n.mode, n.revoked
	goes := func(o namespace.Owner) bool { return o.Session == ended.Session }
	had := slices.ContainsFunc(slices.Collect(maps.Keys(n.openers)), goes)
	left := n.letGo(goes)
	if len(left) == 0 && !had {
		return func() {}
	}
	maps.DeleteFunc(n.openers, func(o namespace.Owner, _ bool) bool { return goes(o) })
	next := namespace.Delay{Mode: mode}
	for _, h := range left {
		next.For = max(next.For, h.Delay)
	}
	if failed && next.For > 0 {
		before, again := m.delays[name]
		if again && before.Mode == api.Exclusive {
			next.Mode = api.Exclusive
		}
		next.For = max(next.For, before.For)
		next.ID = m.draw()
		m.delays[name] = next
		r.Delayed = append(r.Delayed, name)
	}
	was := m.heldIn(mode, broken, left)
	for i, h := range left {
		if failed {
			was[i].Delay = h.Delay
		}
	}
	why := ended.Reason
	if ended.FailOver {
		why = api.ByFailOver
	}
	m.tell(r, name, left)
	return func() { m.note(r, namespace.Ref{Name: name, Instance: n.instance}, was, why) }
}
