package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// revocations is what the master takes from clients that have not let go. An unwilling holder loses a lock
// only through its lease (decision 10). Its sequencer is invalid at once. But the next holder gets the lock
// only when this one has acknowledged the event or let go, or its session has ended. Until the
// acknowledgement the lease is not extended. epoch.mu guards it.
type revocations struct {
	epoch  *epoch
	leases *session.Leases
	boxes  *tables.Mailboxes
	queues *tables.Queues
	events *publisher
	offers *offers

	locks      map[api.SessionID]map[api.HandleID]revokedLock
	ends       map[api.SessionID]uint64         // sessions that are ended against their clients' will: the event for the client
	lastLeases session.Timetable[api.SessionID] // ends of the last leases of those whose end is not proposed
}

// revokedLock is a revoked lock that one handle still holds.
type revokedLock struct {
	lock       namespace.Ref
	generation api.Generation
	sequence   uint64 // of the event for the holder
}

func newRevocations(e *epoch, t *tables.Tables, events *publisher, out *offers) *revocations {
	return &revocations{
		epoch: e, leases: t.Leases, boxes: t.Boxes, queues: t.Queues, events: events, offers: out,
		locks: map[api.SessionID]map[api.HandleID]revokedLock{}, ends: map[api.SessionID]uint64{},
	}
}

// add records that a holder is losing its lock.
func (r *revocations) add(owner namespace.Owner, lost revokedLock) {
	if r.locks[owner.Session] == nil {
		r.locks[owner.Session] = map[api.HandleID]revokedLock{}
	}
	r.locks[owner.Session][owner.Handle] = lost
}

func (r *revocations) remove(owner namespace.Owner) {
	delete(r.locks[owner.Session], owner.Handle)
	if len(r.locks[owner.Session]) == 0 {
		delete(r.locks, owner.Session)
	}
}

func (r *revocations) dropSession(id api.SessionID) {
	delete(r.ends, id)
	delete(r.locks, id)
	r.lastLeases.Drop(id)
}

// takeDue returns at most MaxDue ending sessions whose last lease has expired.
func (r *revocations) takeDue(now session.Instant) []raftfsm.End {
	var ends []raftfsm.End
	for len(ends) < tables.MaxDue {
		id, over, ok := r.lastLeases.Next()
		if !ok || over > now {
			break
		}
		r.lastLeases.Drop(id)
		ends = append(ends, raftfsm.End{Session: id, Reason: api.ByOperator})
	}
	return ends
}

// tellHolders tells the holders of a revoked lock.
func (r *revocations) tellHolders(mu hold, lost namespace.Revocation) {
	for _, owner := range lost.Holders {
		//mutant: if was, told := r.locks[owner.Session][owner.Handle]; told && was.generation == 0 {
		if was, told := r.locks[owner.Session][owner.Handle]; told && was.generation == lost.Generation {
			continue // revoked once more, and the holder was told
		}
		sequence := r.events.postTo(owner, lost.Lock, api.EventLockLost, &Event{
			Generation: lost.Generation, Reason: lost.Reason, Explanation: lost.By.Break(),
		})
		//mutant: r.boxes.ByID[owner.Session].Acked = sequence; r.add(owner, revokedLock{lock: lost.Lock, generation: lost.Generation, sequence: sequence}); r.actOnAcknowledgement(mu, owner.Session) //by TestForcedLoss of ./cell
		r.add(owner, revokedLock{lock: lost.Lock, generation: lost.Generation, sequence: sequence})
		if box := r.boxes.ByID[owner.Session]; box != nil && r.boxes.IsOver(box.Principal) {
			r.stopLease(mu, owner.Session, "too many events wait for the sessions of its principal, and it loses locks")
		}
		mu.pause(1)
	}
}

// terminateSession stops a session's lease for another client.
func (r *revocations) terminateSession(mu hold, id api.SessionID) {
	if record, ok := r.epoch.state().Sessions.Get(id); ok && record.Terminating != nil {
		r.stopLease(mu, id, record.Terminating.Termination())
	}
}

// stopLease stops a session's lease, and tells its client. The session ends at the acknowledgement, or when
// the last lease expires.
func (r *revocations) stopLease(mu hold, id api.SessionID, why string) {
	box := r.boxes.ByID[id]
	if box == nil || r.ends[id] != 0 || !r.leases.Alive(id) {
		return
	}
	over, _ := r.leases.Stop(id)
	r.ends[id] = box.Post(&Event{Kind: api.EventSessionEnded, Reason: api.ByOperator, Explanation: why})
	r.lastLeases.Put(id, over)
	for w := range r.queues.OfSession(id) {
		//mutant: r.queues.FailWaiter(w.Key(), r.epoch.sessionEnded(id))
		r.queues.FailWaiter(w.Key(), w.Abandoned(r.epoch.sessionEnded(id)))
		mu.pause(r.queues.StepsOf(w.Lock.Name))
	}
	r.epoch.reports.sessionEnding(id, box.Principal, why)
}

// actOnAcknowledgement takes the locks whose loss a session has acknowledged, or ends the session.
func (r *revocations) actOnAcknowledgement(mu hold, id api.SessionID) {
	box := r.boxes.ByID[id]
	if box == nil {
		return
	}
	acked := box.Acked
	if _, unproposed := r.lastLeases.At(id); unproposed && acked >= r.ends[id] {
		r.lastLeases.Drop(id)
		c, _ := r.offers.endCommand([]raftfsm.End{{Session: id, Reason: api.ByOperator, Acknowledged: true}})
		r.epoch.submit(c)
	}
	// One command takes a lock from many handles of the session: each copies all holders, perhaps very many.
	type grant struct {
		lock       namespace.Ref
		generation api.Generation
	}
	let := map[grant][]namespace.Owner{}
	for handle, lost := range r.locks[id] {
		if acked < lost.sequence {
			continue
		}
		owner, of := namespace.Owner{Session: id, Handle: handle}, grant{lost.lock, lost.generation}
		r.remove(owner)
		let[of] = append(let[of], owner)
		mu.pause(1)
	}
	for of, holders := range let {
		for len(holders) > 0 {
			//mutant: some := firstPart(holders, r.queues.Claims, func(one namespace.Owner) int { return r.queues.Claims })
			some := firstPart(holders, r.queues.Claims, func(one namespace.Owner) int { return raftfsm.Size(one) })
			holders = holders[len(some):]
			r.evict(mu, raftfsm.Evict{Lock: of.lock, Generation: of.generation, Holders: some})
		}
	}
}

// evict takes a revoked lock from holders that have let go of it, and names the next ones.
func (r *revocations) evict(mu hold, c raftfsm.Evict) {
	c.Successions = r.offers.successorsOf(c.Lock, func(n *namespace.Node) bool { return n.Lock == c.Generation && n.HeldByAny(c.Holders) })
	r.epoch.submit(raftfsm.Command{Evict: &c})
	mu.pause(r.queues.StepsOf(c.Lock.Name) + len(c.Holders)/8)
}

// resumeRevocations continues the revocations of an earlier master, with new events.
func (r *revocations) resumeRevocations(mu hold, state *raftfsm.State) {
	for node := range state.Tree.Locked("") {
		if node.Revoked == nil {
			continue
		}
		lost := namespace.Revocation{Lock: node.Ref(), Generation: node.Lock, Reason: api.ByBreak, By: *node.Revoked}
		for _, h := range node.Holders {
			lost.Holders = append(lost.Holders, h.Owner)
		}
		r.epoch.reports.lockRevoked(lost, 0)
		r.tellHolders(mu, lost)
	}
	for s := range state.Sessions.All() {
		if s.Terminating != nil {
			r.terminateSession(mu, s.ID)
		}
	}
}
