package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Caller is the calling session, and the epoch it believes in.
type Caller struct {
	Session api.SessionID
	Epoch   api.Epoch
}

// Sessions is the master's part that begins, extends and ends sessions (Chubby §2.8).
type Sessions struct {
	epoch       *epoch
	leases      *session.Leases
	boxes       *mailboxes
	copyset     *copyset
	recalls     recalls
	outbox      *outbox
	offers      *offers
	revocations *revocations

	raising    map[api.SessionID]bool // whose longest lease is being raised; epoch.mu guards it
	keepAlives float64                // see Config.KeepAlives
}

// Create begins a session. Its entry also proves leadership, so the first lease counts from the proposal. A
// retry gets the existing session and the rest of its lease: only KeepAlives extend a lease.
func (s *Sessions) Create(ctx context.Context, c raftfsm.CreateSession) (api.SessionID, Grant, error) {
	receipt := s.epoch.clock()
	c.CacheLease = c.CacheLease && c.MayCache && s.epoch.state().Level >= raftfsm.CacheLeaseLevel
	result, err := s.epoch.propose(ctx, raftfsm.Command{CreateSession: &c}, nil)
	if err != nil {
		return 0, Grant{}, err
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	number, left, ok := s.leases.Promise(result.Session, s.leaseOf(result.Session), receipt)
	if !ok {
		return 0, Grant{}, api.Errorf(api.SessionExpired, "the session ended before its creation was answered; open a new one")
	}
	s.epoch.reports.metrics.SessionBegun()
	if box := s.boxes.byID[result.Session]; box != nil {
		box.grant = number
	}
	return result.Session, Grant{Lease: left, Number: number}, nil
}

// Principal returns the principal of a session. It does not change.
func (s *Sessions) Principal(id api.SessionID) (string, error) {
	record, ok := s.epoch.state().Sessions.Get(id)
	if !ok {
		return "", s.epoch.sessionEnded(id)
	}
	return record.Principal, nil
}

// End ends a session for its client. The same entry grants its locks to waiters.
func (s *Sessions) End(ctx context.Context, id api.SessionID) error {
	s.epoch.mu.Lock()
	s.leases.Stop(id)
	s.epoch.mu.Unlock()
	return s.endStopped(ctx, raftfsm.End{Session: id, Reason: api.ByClose})
}

// endStopped ends a session whose lease is stopped, at once.
func (s *Sessions) endStopped(ctx context.Context, end raftfsm.End) error {
	_, err := s.offers.propose(ctx, func(hold) raftfsm.Command {
		c, _ := s.offers.endCommand([]raftfsm.End{end})
		return c
	})
	return err // after a refusal the clock loop retries: the lease is stopped for good
}

func sessionExpired(id api.SessionID) error {
	return api.Errorf(api.SessionExpired, "session %v has ended; open a new one", id)
}

// CheckEpoch rejects a caller that knows a later epoch.
func (s *Sessions) CheckEpoch(who Caller) error {
	if who.Epoch > s.epoch.number {
		return api.Errorf(api.NotMaster, "this replica was master in epoch %d; you have heard of epoch %d", s.epoch.number, who.Epoch)
	}
	return nil
}

// Admit rejects a caller with another epoch, or with an expired session.
func (s *Sessions) Admit(who Caller) error {
	if err := s.CheckEpoch(who); err != nil {
		return err
	}
	if who.Epoch != s.epoch.number {
		return api.Errorf(api.StaleEpoch, "the call was meant for the master of epoch %d; this is epoch %d: keep the session alive first", who.Epoch, s.epoch.number)
	}
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	if !s.leases.Alive(who.Session) {
		return s.epoch.sessionEnded(who.Session)
	}
	return nil
}

// Expire ends a session.
func (s *Sessions) Expire(ctx context.Context, id api.SessionID) error {
	s.epoch.mu.Lock()
	_, known := s.leases.Stop(id)
	s.epoch.mu.Unlock()
	if !known {
		return api.Errorf(api.NotFound, "there is no session %v", id)
	}
	return s.endStopped(ctx, raftfsm.End{Session: id, Reason: api.ByExpiry})
}

// Terminate ends another client's session. Its locks are free once its client has acknowledged the end, or
// its lease and the lock-delays have expired.
func (s *Sessions) Terminate(ctx context.Context, c raftfsm.Terminate) error {
	_, err := s.epoch.propose(ctx, raftfsm.Command{Terminate: &c}, nil)
	return err
}

// endLater queues the end of a session that could not end yet. epoch.mu is held.
func (s *Sessions) endLater(end raftfsm.End) {
	if !s.leases.Alive(end.Session) {
		s.outbox.putEnd(end)
	}
}

// Grant is a lease that a session got.
type Grant struct {
	Lease  time.Duration
	Parked time.Duration // from the receipt of the call to the start of the lease
	Number uint64        // counts up within a session and epoch
}

// leaseOf returns the length of a session's leases: by session.Lengthen, but at most what the log knows.
func (s *Sessions) leaseOf(id api.SessionID) time.Duration {
	if record, ok := s.epoch.state().Sessions.Get(id); ok {
		return min(s.wantedLease(record), record.Lease)
	}
	return api.DefaultLease
}

// replyTogether is the part of a lease (1/48) by which a reply may move, to be sent with others.
const replyTogether = 48
