package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Receipt is what the client of a KeepAlive has received in this epoch.
type Receipt struct {
	Received, Acknowledged uint64 // see mailbox
	Grant                  uint64 // number of the newest grant
}

// Extension is the answer to a KeepAlive: the lease, if it is extended now, and events.
type Extension struct {
	Grant  *Grant
	Events []*Event
}

// Park records what a client has received, and parks its KeepAlive (Chubby §2.8) in place of the last.
//
// The answer is due at once if the client lacks events or a grant, does not know this epoch, or gives a
// requested sign of life. After a lost reply it must not wait for the next: its lease may end before.
func (s *Sessions) Park(c Caller, h Receipt, conn Connection) (*KeepAlive, error) {
	k := &KeepAlive{sessions: s, caller: c, receipt: s.epoch.clock(), conn: conn}
	mu := s.epoch.mu.hold()
	defer mu.end()
	box, err := s.hear(mu, c, h)
	//mutant: if false {
	if err == nil && s.epoch.ctx.Err() != nil { // endCalls may have run
		err = context.Cause(s.epoch.ctx)
	}
	if err != nil {
		return nil, err
	}
	box.calls++
	k.number, k.told = box.calls, box.received
	if c.Epoch != s.epoch.number || h.Grant < box.grant || len(box.events) > 0 || box.asked && box.isAcknowledged() {
		return k, nil
	}
	lease := s.leaseOf(c.Session)
	due := s.epoch.clock().Add(session.Due(lease))
	if box.isAcknowledged() { // else this call only waits for events
		// Its last lease may have been longer than the next; the client's timeout comes from the last.
		end, _ := s.leases.End(c.Session)
		due = min(due, end.Add(session.Due(lease)-lease))
	}
	k.place = &parked{}
	box.park(k.place)
	k.patience = alignDue(due, lease).Sub(k.receipt)
	return k, nil
}

// hear records what a client has received, and returns its mailbox.
func (s *Sessions) hear(mu hold, c Caller, h Receipt) (*mailbox, error) {
	box, ok := s.boxes.byID[c.Session]
	switch {
	case !ok || !s.leases.Alive(c.Session) && s.revocations.ends[c.Session] == nil:
		return nil, s.epoch.sessionEnded(c.Session)
	case c.Epoch != s.epoch.number:
		return box, nil
	}
	box.acknowledge(h.Received, h.Acknowledged)
	//mutant: for !s.copyset.acknowledge(c.Session, box.acked, maxSteps) { //by TestSuccessorWritesAtOnce of ./cell
	//mutant: for !s.copyset.acknowledge(c.Session, box.delivered, maxSteps) {
	for !s.copyset.acknowledge(c.Session, box.received, maxSteps) {
		mu.pause(maxSteps)
	}
	mu.pause(s.recalls.acknowledge(box, box.acked))
	s.revocations.actOnAcknowledgement(mu, c.Session)
	if s.boxes.byID[c.Session] != box {
		return nil, s.epoch.sessionEnded(c.Session) // it ended in a pause
	}
	return box, nil
}

// alignDue moves replies to common times, a little early, so that many sessions share proofs, wake-ups and
// packets.
func alignDue(due session.Instant, lease time.Duration) session.Instant {
	return due - due%session.Instant(lease/replyTogether)
}

// wantedLease returns how long a session's leases should be.
func (s *Sessions) wantedLease(record *session.Session[raftfsm.Answer]) time.Duration {
	return session.Lengthen(record.Asked, s.epoch.state().Sessions.Len(), s.keepAlives)
}

// raiseLease proposes a session's longer lease, for the next KeepAlive. epoch.mu is held.
func (s *Sessions) raiseLease(id api.SessionID) {
	record, ok := s.epoch.state().Sessions.Get(id)
	if !ok || s.raising[id] {
		return
	}
	if lease := s.wantedLease(record); lease > record.Lease {
		s.raising[id] = true
		s.epoch.submit(raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{Session: id, Lease: lease}})
	}
}

// extendLease grants the lease from t0, and takes the events. It grants none to an ending session, or if
// acknowledgements are pending or there is no recent sign of life.
func (s *Sessions) extendLease(k *KeepAlive, t0 session.Instant) (Extension, error) {
	id := k.caller.Session
	lease := s.leaseOf(id)
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box, ok := s.boxes.byID[id]
	if !ok {
		return Extension{}, s.epoch.sessionEnded(id)
	}
	box.unpark(k.place)
	if box.calls != k.number { // its events would become owed, and the newer call would extend nothing
		return Extension{}, errReplaced
	}
	var reply Extension
	ending := s.revocations.ends[id]
	switch {
	case ending != nil && box.acked >= ending.sequence:
		return Extension{}, s.epoch.sessionEnded(id)
	case ending != nil || !box.isAcknowledged():
	case !k.isFresh(t0): // slow, as when all clients return after a fail-over
		box.asked = true
	default:
		number, ok := s.leases.Grant(id, lease, t0)
		if !ok {
			return Extension{}, s.epoch.sessionEnded(id)
		}
		box.grant, box.asked = number, false
		reply.Grant = &Grant{Lease: lease, Parked: t0.Sub(k.receipt), Number: number}
		s.epoch.reports.metrics.LeaseExtended(s.leases.CountUnheard())
		s.raiseLease(id)
	}
	reply.Events = box.takeEvents(k.told)
	return reply, nil
}
