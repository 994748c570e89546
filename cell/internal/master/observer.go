package master

import (
	"context"
	"log/slog"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// observer turns what the log did, or failed to do, into what only the master keeps. It
// is the one place where commands change that.
type observer struct {
	epoch       *epoch
	tables      *tables
	events      *publisher
	offers      *offers
	revocations *revocations
	remover     *remover
	sessions    *Sessions
	files       *Files
	locks       *Locks
}

// observe turns what the log did, or failed to do, into what only the master
// keeps: sessions that are no more, grants and places in queues, delays to
// time, nodes to tell about. The proposer calls it in commit order.
//
// One entry may be much work: the end of many sessions with many handles, or an event
// for very many watchers. So the mutex is released in between (pause), after a
// command and inside of those that may be long, and others see the master when it
// has observed a part of the entry. That is no new case for them. The state has the
// whole entry before anything of it is observed, so everybody has to bear with a
// state that is ahead of what is kept here; and a part of an entry, observed, is what
// an entry with fewer commands would have been. What is kept:
//   - the next entry is applied when all of this one has been observed, so the
//     state stays the same for as long as observe runs;
//   - callers go on when all of the entry has been observed;
//   - a session that has ended loses its lease and its mailbox first, in one hold,
//     so that nothing is entered in its name while the rest of it is being
//     forgotten;
//   - the events of one session are posted in commit order, for only observe
//     posts events of changes.
func (o *observer) observe(commands []raftfsm.Command, results []raftfsm.Result, err error) {
	o.epoch.mu.Lock()
	defer o.epoch.mu.Unlock()
	o.epoch.metrics.Proposed(len(commands), err)
	for i, c := range commands {
		if err != nil {
			o.unproposed(c, inDoubt(err))
		} else {
			o.observeOne(c, results[i])
		}
		o.epoch.mu.pause(1)
	}
}

func (o *observer) observeOne(c raftfsm.Command, r raftfsm.Result) {
	for _, end := range r.Ended {
		o.sessionEnded(end)
	}
	if c.CreateSession != nil && r.Code() == api.OK && o.tables.boxes.byID[r.Session] == nil {
		o.tables.leases.Start(r.Session, c.CreateSession.Lease, o.epoch.clock())
		o.tables.boxes.byID[r.Session] = newMailbox(o.tables.boxes.mail, c.CreateSession.Principal)
	}
	if c.RaiseLease != nil {
		delete(o.sessions.raising, c.RaiseLease.Session)
	}
	if c.Open != nil && r.Code() == api.OK && r.Stat != nil {
		o.files.nodeOpened(c.Open, r.Stat)
	}
	if c.Close != nil && r.Code() == api.OK {
		o.files.handleClosed(namespace.Owner{Session: c.Close.Mutation.Session, Handle: c.Close.Handle})
	}
	for _, claim := range r.Claims {
		if !claim.Pending {
			o.locks.granted(claim)
			o.tables.queues.finish(waiterKey{session: claim.Owner.Session, number: claim.Number}, claim.Answer)
			if claim.Answer.Code() == api.OK {
				o.events.conflictsAlready(claim.Owner, claim.Answer)
			}
			o.epoch.mu.pause(o.tables.queues.weight(claim.Answer.Lock.Name))
		}
	}
	if c.Cancel != nil {
		key := waiterKey{session: c.Cancel.Mutation.Session, number: c.Cancel.Mutation.Number}
		if w := o.tables.queues.finish(key, r.Answer); w != nil {
			o.offers.pump(w.lock.Name)
		}
		if r.Code() == api.Cancelled { // it may be an Open that needed no entry
			o.tables.handles.close(namespace.Owner{Session: key.session, Handle: api.HandleID(key.number)})
		}
	}
	for _, name := range r.Delayed {
		if d, ok := o.epoch.state().Tree.Delay(name); ok {
			o.tables.delays.start(name, d.ID, d.For, o.epoch.clock())
			o.epoch.log.Info("lock delayed: its holder failed", "lock", name, "for", d.For)
			o.epoch.mu.pause(1)
		}
	}
	o.remover.add(r.Dying...)
	for _, change := range r.Changes {
		o.events.publish(change)
	}
	if c.Delete != nil && len(r.Changes) > 0 {
		o.tables.copyset.forgetOwn(c.Delete.Mutation.Session, c.Delete.Node.Name)
	}
	for _, revocation := range r.Revoked {
		o.revocations.revoked(revocation)
	}
	for _, id := range r.Terminating {
		o.revocations.terminateSession(id)
		o.epoch.mu.pause(1)
	}
	o.offers.reoffer(c, false)
	o.events.vacated(r)
	for _, name := range slices.Concat(r.Free, r.Delayed, joinable(r.Claims)) { // readers may share a lock that readers left delayed
		o.offers.pump(name)
		o.epoch.mu.pause(o.tables.queues.weight(name))
	}
}

// joinable returns the locks that were granted in shared mode: there may be more
// who can have them than there was room for in one command.
func joinable(claims []raftfsm.ClaimResult) []api.Name {
	var names []api.Name
	for _, claim := range claims {
		if !claim.Pending && claim.Answer.Code() == api.OK && claim.Answer.Mode == api.Shared {
			names = append(names, claim.Answer.Lock.Name)
		}
	}
	return slices.Compact(names)
}

// sessionEnded forgets a session and tells whoever waits in its name. epoch.mu is held,
// and released in between.
func (o *observer) sessionEnded(end raftfsm.Ended) {
	o.tables.leases.Remove(end.Session)
	o.revocations.forget(end.Session)
	if box := o.tables.boxes.byID[end.Session]; box != nil {
		box.discard()
		delete(o.tables.boxes.byID, end.Session)
	}
	for !o.tables.handles.drop(end.Session, maxSteps) {
		o.epoch.mu.pause(maxSteps)
	}
	for !o.tables.copyset.drop(end.Session, maxSteps) {
		o.epoch.mu.pause(maxSteps)
	}
	gone := api.Errorf(api.SessionExpired, "the session has ended: %v", end.Reason)
	for w := range o.tables.queues.of(end.Session) {
		o.tables.queues.fail(w.key(), gone)
		o.epoch.mu.pause(o.tables.queues.weight(w.lock.Name))
	}
	o.epoch.metrics.SessionEnded(end.Reason)
	level := slog.LevelInfo
	if end.Reason == api.ByClose {
		level = slog.LevelDebug // as most sessions do
	}
	o.epoch.log.Log(context.Background(), level, "session ended", "session", end.Session, "reason", end.Reason,
		"principal", end.Principal, "host", end.Host, "pid", end.PID)
}

// inDoubt reports whether an entry that came to that error may be committed yet.
func inDoubt(err error) bool {
	code := api.CodeOf(err)
	return code != api.NotMaster && code != api.Unavailable
}

// unproposed takes note that a command of somebody's was not, or perhaps not (doubt),
// committed: what it was to do is tried again on the next tick.
func (o *observer) unproposed(c raftfsm.Command, doubt bool) {
	o.offers.reoffer(c, doubt)
	switch {
	case c.Cancel != nil:
		if w := o.offers.refusing(c.Cancel); w != nil {
			o.tables.outbox.putRequest(w)
		}
	case c.Acquire != nil:
		for _, claim := range c.Acquire.Claims {
			if w := o.tables.queues.get(waiterKey{session: claim.Mutation.Session, number: claim.Mutation.Number}); w != nil {
				o.tables.outbox.putRequest(w)
			}
		}
	case c.EndSessions != nil:
		for _, end := range c.EndSessions.Ends {
			o.sessions.endAgain(end)
		}
	case c.RaiseLease != nil:
		delete(o.sessions.raising, c.RaiseLease.Session)
	case c.EndDelay != nil:
		o.tables.delays.start(c.EndDelay.Name, c.EndDelay.ID, 0, o.epoch.clock())
	case c.Evict != nil:
		o.tables.outbox.putEviction(*c.Evict)
	}
}

// endAgain takes note that a session is to be ended which could not be yet. epoch.mu is held.
func (s *Sessions) endAgain(end raftfsm.End) {
	if !s.leases.Alive(end.Session) {
		s.outbox.putEnd(end)
	}
}
