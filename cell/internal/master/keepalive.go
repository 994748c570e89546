package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Receipt is what a KeepAlive says that its client has heard in this epoch.
type Receipt struct {
	Received, Acknowledged uint64 // see mailbox
	Grant                  uint64 // number of the newest grant
}

// Extension is what a KeepAlive brings: the lease, unless nothing is extended now, and
// what is to be told.
type Extension struct {
	Grant  *Grant
	Events []*Event
}

// Park takes note of what a client has heard, and parks its KeepAlive (Chubby §2.8), in the
// place of the one before.
//
// The answer is due at once if the client has not yet heard what it was told or granted,
// does not know this epoch, or gives a sign of life that it was asked for. A reply that was
// lost must not cost the client the time until the next one is due: its own lease may end
// before.
func (s *Sessions) Park(c Caller, h Receipt, conn Connection) (*KeepAlive, error) {
	k := &KeepAlive{sessions: s, caller: c, client: signsOfLife{receipt: s.epoch.clock(), conn: conn}}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box, err := s.hear(c, h)
	//mutant: if false {
	if err == nil && s.epoch.ctx.Err() != nil { // endCalls may have passed
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
	if box.isAcknowledged() { // else nothing is extended, and there is only something to wait for
		// Its last lease may have been longer than the next will be; its client's
		// patience with this call is that of the lease that it was granted last.
		end, _ := s.leases.End(c.Session)
		due = min(due, end.Add(session.Due(lease)-lease))
	}
	k.place, k.patience = box.park(), alignDue(due, lease).Sub(k.client.receipt)
	return k, nil
}

// hear takes note of what a client has heard, and returns its mailbox. epoch.mu is held, and
// released in between.
func (s *Sessions) hear(c Caller, h Receipt) (*mailbox, error) {
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
		s.epoch.mu.pause(maxSteps)
	}
	s.epoch.mu.pause(s.recalls.acknowledge(c.Session, box.acked))
	s.revocations.actOnAcknowledgement(c.Session)
	if s.boxes.byID[c.Session] != box {
		return nil, s.epoch.sessionEnded(c.Session) // in between
	}
	return box, nil
}

// alignDue has replies that are due at about the same time be sent at the same
// time, a little early, so that with very many sessions they share proofs, wake-ups
// and packets.
func alignDue(due session.Instant, lease time.Duration) session.Instant {
	return due - due%session.Instant(lease/replyTogether)
}

// wantedLease returns how long the leases of a session are to be.
func (s *Sessions) wantedLease(record *session.Session[raftfsm.Answer]) time.Duration {
	return session.Lengthen(record.Asked, s.epoch.state().Sessions.Len(), s.keepAlives)
}

// raiseLease has the log know of a longer lease, if a session is to be granted one:
// from the KeepAlive after that it is. epoch.mu is held.
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

// extendLease grants the lease from t0, unless the client has not acknowledged what
// it was told, has shown no sign of life lately, or the session is ending, and takes the
// events along.
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
	if box.calls != k.number { // what it told would be owed, and the newer call would extend nothing
		return Extension{}, errReplaced
	}
	var reply Extension
	ending := s.revocations.ends[id]
	switch {
	case ending != nil && box.acked >= ending.sequence:
		return Extension{}, s.epoch.sessionEnded(id)
	case ending != nil || !box.isAcknowledged():
	case !k.client.isFresh(t0): // the answer has taken long: a crowd comes at once after a fail-over
		box.asked = true
	default:
		number, ok := s.leases.Grant(id, lease, t0)
		if !ok {
			return Extension{}, s.epoch.sessionEnded(id)
		}
		box.grant, box.asked = number, false
		reply.Grant = &Grant{Lease: lease, Parked: t0.Sub(k.client.receipt), Number: number}
		s.epoch.metrics.LeaseExtended(s.leases.CountUnheard())
		s.raiseLease(id)
	}
	reply.Events = box.takeEvents(k.told)
	return reply, nil
}
