package cell

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// losses is what is being taken from clients that have not let go yet. A lock
// leaves an unwilling holder only through its lease (decision 10): its
// sequencer is dead from the start, but nobody else gets the lock before the
// holder has acknowledged the event that tells it, or let go by itself, or its
// session has ended. Until it acknowledges, no lease of it is extended.
// master.mu guards it.
type losses struct {
	locks map[api.SessionID]map[api.HandleID]lostLock
	ends  map[api.SessionID]*ending
	over  session.Timetable[api.SessionID] // when the last leases of those end that were not proposed yet
}

// lostLock is a revoked lock that one handle still holds.
type lostLock struct {
	lock       namespace.Ref
	generation api.Generation
	sequence   uint64 // of the event that tells the holder
}

// ending is a session that somebody else is ending.
type ending struct {
	sequence uint64 // of the event that tells the client
	proposed bool
}

func newLosses() *losses {
	return &losses{locks: map[api.SessionID]map[api.HandleID]lostLock{}, ends: map[api.SessionID]*ending{}}
}

// lose takes note that a holder is losing its lock.
func (l *losses) lose(owner namespace.Owner, lost lostLock) {
	if l.locks[owner.Session] == nil {
		l.locks[owner.Session] = map[api.HandleID]lostLock{}
	}
	l.locks[owner.Session][owner.Handle] = lost
}

// let forgets the loss of one lock.
func (l *losses) let(owner namespace.Owner) {
	delete(l.locks[owner.Session], owner.Handle)
	if len(l.locks[owner.Session]) == 0 {
		delete(l.locks, owner.Session)
	}
}

// propose takes note that the end of a session is being proposed.
func (l *losses) propose(id api.SessionID, e *ending) {
	e.proposed = true
	l.over.Drop(id)
}

// forget drops what is known of a session that has ended.
func (l *losses) forget(id api.SessionID) {
	delete(l.ends, id)
	delete(l.locks, id)
	l.over.Drop(id)
}

// next returns when the earliest of the ending sessions is over.
func (l *losses) next() (at session.Instant, ok bool) {
	_, at, ok = l.over.Next()
	return at, ok
}

// due returns ending sessions whose last lease is over, at most maxDue of them.
func (l *losses) due(now session.Instant) []raftfsm.End {
	var ends []raftfsm.End
	for len(ends) < maxDue {
		id, over, ok := l.over.Next()
		if !ok || over > now {
			break
		}
		l.propose(id, l.ends[id])
		ends = append(ends, raftfsm.End{Session: id, Reason: api.ByOperator})
	}
	return ends
}

// breakLock takes a lock away from its holders, at somebody's wish.
func (m *master) breakLock(ctx context.Context, c raftfsm.Revoke) error {
	_, err := m.proposeMade(ctx, func() raftfsm.Command {
		m.mu.pause(m.queues.weight(c.Lock.Name))
		if c.Now {
			tree, by := m.state().Tree, m.principal(c.Mutation.Session)
			c.Successions = m.next(c.Lock, func(n *namespace.Node) bool {
				return len(n.Holders) > 0 && tree.Permit(n, by, namespace.ToChange) == nil
			})
		}
		return raftfsm.Command{Revoke: &c}
	})
	return err
}

// endOther ends another client's session. What it holds is free when its client
// has acknowledged the end, or its lease and the lock-delays are over.
func (m *master) endOther(ctx context.Context, c raftfsm.Terminate) error {
	_, err := m.propose(ctx, raftfsm.Command{Terminate: &c})
	return err
}

// revoked tells the holders of a revoked lock of their loss. m.mu is held.
func (m *master) revoked(r raftfsm.Revocation) {
	m.log.Info("lock revoked", "lock", r.Lock.Name, "token", r.Generation, "why", r.Why)
	for _, owner := range r.Holders {
		if was, told := m.losses.locks[owner.Session][owner.Handle]; told && was.generation == r.Generation {
			continue // it is broken once more, and its holder has been told
		}
		sequence := m.post(owner, r.Lock, api.EventLockLost, &Event{
			Generation: r.Generation, Reason: r.Reason, Explanation: r.Why,
		})
		m.losses.lose(owner, lostLock{lock: r.Lock, generation: r.Generation, sequence: sequence})
		if box := m.boxes[owner.Session]; box != nil && m.mail.isOver(box.principal) {
			m.stopLease(owner.Session, "too many events wait for the sessions of its principal, and it loses locks")
		}
		m.mu.pause(1)
	}
}

// terminateSession stops the lease of a session that another terminates. m.mu is
// held.
func (m *master) terminateSession(id api.SessionID) {
	if s, ok := m.state().Sessions.Get(id); ok {
		m.stopLease(id, s.Terminating)
	}
}

// stopLease extends a session no more, and tells its client; it ends when the
// client has acknowledged that, or its last lease is over. m.mu is held, and released
// in between.
func (m *master) stopLease(id api.SessionID, why string) {
	box := m.boxes[id]
	if box == nil || m.losses.ends[id] != nil || !m.leases.Alive(id) {
		return
	}
	over, _ := m.leases.Stop(id)
	sequence := box.post(&Event{
		Kind: api.EventSessionEnded, Reason: api.ByOperator, Explanation: why,
	})
	m.losses.ends[id] = &ending{sequence: sequence}
	m.losses.over.Put(id, over)
	for w := range m.queues.of(id) {
		m.queues.finish(w.key(), raftfsm.Refusal(w.forsaken(m.ended(id))))
		m.mu.pause(m.queues.weight(w.lock.Name))
	}
	m.log.Info("session is being ended", "session", id, "why", why)
}

// acknowledged acts upon what a session has heard by now: it has let go of what
// those events took from it. m.mu is held, and released in between.
func (m *master) acknowledged(id api.SessionID) {
	box := m.boxes[id]
	if box == nil {
		return
	}
	acked := box.acked
	if e := m.losses.ends[id]; e != nil && acked >= e.sequence && !e.proposed {
		m.losses.propose(id, e)
		c, _ := m.endCommand([]raftfsm.End{{Session: id, Reason: api.ByOperator, Acknowledged: true}})
		m.submit(c)
	}
	// One command takes a lock from many handles of the session: each copies all holders, of whom there may be very
	// many.
	type grant struct {
		lock       namespace.Ref
		generation api.Generation
	}
	let := map[grant][]namespace.Owner{}
	for handle, lost := range m.losses.locks[id] {
		if acked < lost.sequence {
			continue
		}
		owner, of := namespace.Owner{Session: id, Handle: handle}, grant{lost.lock, lost.generation}
		m.losses.let(owner)
		let[of] = append(let[of], owner)
		m.mu.pause(1)
	}
	for of, holders := range let {
		for len(holders) > 0 {
			some := piece(holders, m.queues.claims, func(namespace.Owner) int { return mostOwnerBytes })
			holders = holders[len(some):]
			m.evict(raftfsm.Evict{Lock: of.lock, Generation: of.generation, Holders: some})
		}
	}
}

// mostOwnerBytes is what a holder takes in a command, at most.
const mostOwnerBytes = 24

// evict takes a revoked lock from holders that have let go of it, and names who has it
// next. m.mu is held, and released in between.
func (m *master) evict(c raftfsm.Evict) {
	c.Successions = m.next(c.Lock, func(n *namespace.Node) bool { return n.Lock == c.Generation && n.HeldByAny(c.Holders) })
	m.submit(raftfsm.Command{Evict: &c})
	m.mu.pause(m.queues.weight(c.Lock.Name) + len(c.Holders)/8)
}

// resume takes up what an earlier master had begun to take away: it tells again,
// and waits again. m.mu is held.
func (m *master) resume(state *raftfsm.State) {
	for node := range state.Tree.Locked("") {
		if node.Revoked == "" {
			continue
		}
		r := raftfsm.Revocation{Lock: node.Ref(), Generation: node.Lock, Reason: api.ByBreak, Why: node.Revoked}
		for _, h := range node.Holders {
			r.Holders = append(r.Holders, h.Owner)
		}
		m.revoked(r)
	}
	for s := range state.Sessions.All() {
		if s.Terminating != "" {
			m.terminateSession(s.ID)
		}
	}
}
