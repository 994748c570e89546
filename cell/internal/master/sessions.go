package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
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
	boxes       *tables.Mailboxes
	copyset     *tables.Copyset
	recalls     tables.Recalls
	outbox      *tables.Outbox
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
	if box := s.boxes.ByID[result.Session]; box != nil {
		box.Grant = number
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
		s.outbox.PutEnd(end)
	}
}

// Grant is a lease that a session got.
type Grant struct {
	Lease  time.Duration
	Parked time.Duration // from the receipt of the call to the start of the lease
	Number uint64        // counts up within a session and epoch
}

// leaseOf returns the length of a session's leases.
func (s *Sessions) leaseOf(id api.SessionID) time.Duration {
	lease, _ := s.leasesOf(id)
	return lease
}

// leasesOf returns the length of a session's leases: by session.Lengthen, but at most what the log knows. A longer
// one that the log should know is wanted; else wanted is lease.
func (s *Sessions) leasesOf(id api.SessionID) (lease, wanted time.Duration) {
	state := s.epoch.state()
	record, ok := state.Sessions.Get(id)
	if !ok {
		return api.DefaultLease, api.DefaultLease
	}
	wanted = session.Lengthen(record.Asked, state.Sessions.Len(), s.keepAlives)
	return min(wanted, record.Lease), wanted
}

// replyTogether is the part of a lease (1/48) by which a reply may move, to be sent with others.
const replyTogether = 48

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
	k := &KeepAlive{sessions: s, caller: c, conn: conn}
	if conn != nil {
		k.receipt = conn.LastArrival() // not before the client sent the call; a clock takes a system call
	} else {
		k.receipt = s.epoch.clock()
	}
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
	box.Calls++
	k.number, k.told = box.Calls, box.Received
	if c.Epoch != s.epoch.number || h.Grant < box.Grant || len(box.Events) > 0 || box.Asked && box.IsAcknowledged() {
		return k, nil
	}
	lease := box.Lease
	if lease == 0 {
		lease = s.leaseOf(c.Session)
	}
	due := k.receipt.Add(session.Due(lease))
	if box.IsAcknowledged() { // else this call only waits for events
		// Its last lease may have been longer than the next; the client's timeout comes from the last.
		end, _ := s.leases.End(c.Session)
		due = min(due, end.Add(session.Due(lease)-lease))
	}
	k.place = &parked{}
	box.Park(k.place)
	k.due = alignDue(due, lease)
	return k, nil
}

// hear records what a client has received, and returns its mailbox.
func (s *Sessions) hear(mu hold, c Caller, h Receipt) (*tables.Mailbox, error) {
	box, ok := s.boxes.ByID[c.Session]
	switch {
	case !ok || !s.leases.Alive(c.Session) && s.revocations.ends[c.Session] == 0:
		return nil, s.epoch.sessionEnded(c.Session)
	case c.Epoch != s.epoch.number:
		return box, nil
	}
	box.Acknowledge(h.Received, h.Acknowledged)
	//mutant: for !s.copyset.Acknowledge(c.Session, box.Acked, maxSteps) { //by TestSuccessorWritesAtOnce of ./cell
	//mutant: for !s.copyset.Acknowledge(c.Session, ^uint64(0), maxSteps) {
	for !s.copyset.Acknowledge(c.Session, box.Received, maxSteps) {
		mu.pause(maxSteps)
	}
	mu.pause(s.recalls.Acknowledge(box, box.Acked))
	s.revocations.actOnAcknowledgement(mu, c.Session)
	if s.boxes.ByID[c.Session] != box {
		return nil, s.epoch.sessionEnded(c.Session) // it ended in a pause
	}
	return box, nil
}

// alignDue moves replies to common times, a little early, so that many sessions share proofs, wake-ups and
// packets.
func alignDue(due session.Instant, lease time.Duration) session.Instant {
	return due - due%session.Instant(lease/replyTogether)
}

// raiseLease proposes a session's longer lease, for the next KeepAlive. epoch.mu is held.
func (s *Sessions) raiseLease(id api.SessionID, to time.Duration) {
	if !s.raising[id] {
		s.raising[id] = true
		s.epoch.submit(raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{Session: id, Lease: to}})
	}
}

// extendLease grants the lease from the start of the proof, and takes the events. It grants none to an ending session, or if
// acknowledgements are pending or there is no recent sign of life.
func (s *Sessions) extendLease(k *KeepAlive, p proof) (Extension, error) {
	id, lease, wanted, t0 := k.caller.Session, p.lease, p.wanted, p.t0
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	box, ok := s.boxes.ByID[id]
	if !ok {
		return Extension{}, s.epoch.sessionEnded(id)
	}
	box.Unpark(k.place)
	if box.Calls != k.number { // its events would become owed, and the newer call would extend nothing
		return Extension{}, errReplaced
	}
	var reply Extension
	ending := s.revocations.ends[id]
	switch {
	case ending != 0 && box.Acked >= ending:
		return Extension{}, s.epoch.sessionEnded(id)
	case ending != 0 || !box.IsAcknowledged():
	case !k.isFresh(t0): // slow, as when all clients return after a fail-over
		box.Asked = true
	default:
		number, ok := s.leases.Grant(id, lease, t0)
		if !ok {
			return Extension{}, s.epoch.sessionEnded(id)
		}
		box.Grant, box.Lease, box.Asked = number, lease, false
		reply.Grant = &Grant{Lease: lease, Parked: t0.Sub(k.receipt), Number: number}
		s.epoch.reports.metrics.LeaseExtended(s.leases.CountUnheard())
		if wanted > lease {
			s.raiseLease(id, wanted)
		}
	}
	reply.Events = box.TakeEvents(k.told)
	return reply, nil
}

// Redact removes from descriptions of nodes what a session may not see, and reports whether it did. A session
// sees all of a node that its principal may read, or that its handle was opened to read. Otherwise it sees
// name and kind; the access control lists, if its handle may change them; and generation, length, checksum
// and time of contents it has just written. Operators see no more. handle has the handle's rights.
func (s *Sessions) Redact(id api.SessionID, handle namespace.Rights, written bool, nodes []api.Stat) (withheld bool) {
	if handle&namespace.ToRead != 0 {
		return false
	}
	tree, principal := s.epoch.state().Tree, s.epoch.principal(id)
	admitted := map[string]bool{} // by list: most nodes of a directory name the same
	for i, n := range nodes {
		may, asked := admitted[n.ACL.Read]
		if !asked {
			may = tree.Admits(n.ACL.Read, principal)
			admitted[n.ACL.Read] = may
		}
		if !may {
			nodes[i], withheld = outline(n, handle, written), true
		}
	}
	return withheld
}
