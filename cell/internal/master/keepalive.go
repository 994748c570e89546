package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Grant is a lease that a session was granted.
type Grant struct {
	Lease  time.Duration
	Parked time.Duration // from the receipt of the call to the start of the lease
	Number uint64        // counts up within a session and epoch
}

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

// KeepAlive parks the call until the lease is due to be extended or something
// is to be told (Chubby §2.8); then it proves that this is still the master,
// and promises the session its lease from the start of that proof.
func (s *Sessions) KeepAlive(ctx context.Context, c Caller, h Receipt, conn Connection) (Extension, error) {
	receipt := s.epoch.clock()
	client := signsOfLife{receipt: receipt, conn: conn}
	p, due, err := s.parkCall(c, h)
	if err != nil {
		return Extension{}, err
	}
	if p != nil {
		if err := s.waitUntil(ctx, p, due.Sub(receipt)); err != nil {
			return Extension{}, err
		}
		if silent, err := s.awaitSignOfLife(ctx, c, p, client); silent || err != nil {
			return Extension{}, err
		}
	}
	t0, err := s.epoch.fence.Prove(ctx)
	if err != nil {
		return Extension{}, err
	}
	return s.extendLease(c, p, receipt, t0, client.isFresh(t0))
}

// parkCall returns a place to wait, or nil if the reply is due at once: because the
// client has not yet heard what it was told or granted, does not know this epoch,
// or gives a sign of life that it was asked for. A reply that was lost must not cost the client the time until the next
// one is due: its own lease may end before.
func (s *Sessions) parkCall(c Caller, h Receipt) (*parked, session.Instant, error) {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box, ok := s.boxes.byID[c.Session]
	if !ok || !s.leases.Alive(c.Session) && s.revocations.ends[c.Session] == nil {
		return nil, 0, s.epoch.sessionEnded(c.Session)
	}
	if c.Epoch == s.epoch.number {
		box.acknowledge(h.Received, h.Acknowledged)
		for !s.copyset.acknowledge(c.Session, box.received, maxSteps) {
			s.epoch.mu.pause(maxSteps)
		}
		s.epoch.mu.pause(s.recalls.acknowledge(c.Session, box.acked))
		s.revocations.actOnAcknowledgement(c.Session)
		if s.boxes.byID[c.Session] != box {
			return nil, 0, s.epoch.sessionEnded(c.Session) // in between
		}
	}
	if c.Epoch != s.epoch.number || h.Grant < box.grant || len(box.events) > 0 || box.asked && box.isAcknowledged() {
		return nil, 0, nil
	}
	lease := s.leaseOf(c.Session)
	due := s.epoch.clock().Add(session.Due(lease))
	if box.isAcknowledged() { // else nothing is extended, and there is only something to wait for
		// Its last lease may have been longer than the next will be; its client's
		// patience with this call is that of the lease that it was granted last.
		end, _ := s.leases.End(c.Session)
		due = min(due, end.Add(session.Due(lease)-lease))
	}
	return box.park(), alignDue(due, lease), nil
}

// replyTogether is the part of a lease by which a reply may be early or late so as
// to be sent together with others.
const replyTogether = 48

// alignDue has replies that are due at about the same time be sent at the same
// time, a little early, so that with very many sessions they share proofs, wake-ups
// and packets.
func alignDue(due session.Instant, lease time.Duration) session.Instant {
	return due - due%session.Instant(lease/replyTogether)
}

// leaseOf returns the length of the leases that a session is granted: by the
// rule of session.Lengthen, but not longer than the log knows of.
func (s *Sessions) leaseOf(id api.SessionID) time.Duration {
	if record, ok := s.epoch.state().Sessions.Get(id); ok {
		return min(s.wantedLease(record), record.Lease)
	}
	return api.DefaultLease
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

// waitUntil returns when the parked call is to be answered.
func (s *Sessions) waitUntil(ctx context.Context, p *parked, due time.Duration) error {
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.wake:
		if p.over {
			return api.Errorf(api.Cancelled, "a newer KeepAlive of the session has taken the place of this one")
		}
		return nil
	case <-ctx.Done():
		return &api.Error{Code: api.Cancelled, Message: "the call ended while it was parked", Err: context.Cause(ctx)}
	case <-s.epoch.ctx.Done():
		return context.Cause(s.epoch.ctx)
	}
}

// extendLease grants the lease from t0, unless the client has not acknowledged what
// it was told, has shown no sign of life lately (fresh), or the session is ending,
// and takes the events along.
func (s *Sessions) extendLease(c Caller, p *parked, receipt, t0 session.Instant, fresh bool) (Extension, error) {
	lease := s.leaseOf(c.Session)
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box, ok := s.boxes.byID[c.Session]
	if !ok {
		return Extension{}, s.epoch.sessionEnded(c.Session)
	}
	box.unpark(p)
	var reply Extension
	if ending := s.revocations.ends[c.Session]; ending != nil && box.acked >= ending.sequence {
		return Extension{}, s.epoch.sessionEnded(c.Session)
	} else if ending == nil && box.isAcknowledged() && fresh {
		number, ok := s.leases.Grant(c.Session, lease, t0)
		if !ok {
			return Extension{}, s.epoch.sessionEnded(c.Session)
		}
		box.grant, box.asked = number, false
		reply.Grant = &Grant{Lease: lease, Parked: t0.Sub(receipt), Number: number}
		s.epoch.metrics.LeaseExtended()
		s.raiseLease(c.Session)
	}
	reply.Events = box.takeEvents()
	return reply, nil
}
