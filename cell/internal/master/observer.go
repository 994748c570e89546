package master

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
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

	asked steps.RequestID // for the command that is being observed, in the log; 0 if it is the master's own
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
//
// requests are how clients call the requests that the commands are of.
func (o *observer) observe(commands []raftfsm.Command, requests []steps.RequestID, results []raftfsm.Result, err error) {
	o.epoch.mu.Lock()
	defer o.epoch.mu.Unlock()
	o.epoch.metrics.Proposed(len(commands), err)
	for i, c := range commands {
		if err != nil {
			o.unproposed(c, inDoubt(err))
		} else {
			o.asked = requests[i]
			o.observeOne(c, results[i])
		}
		o.epoch.mu.pause(1)
	}
}

// observeOne observes one command. The order of the steps matters; each says what has to
// be before it.
func (o *observer) observeOne(c raftfsm.Command, r raftfsm.Result) {
	// 1. Sessions that have ended, first: everything below enters nothing in the name of a
	// session that has no lease and no mailbox.
	for _, end := range r.Ended {
		o.sessionEnded(end)
	}
	// Who has a lock no more is logged before the next grant (3), from which on it is not known for how long it was held.
	//mutant: defer o.locks.noteLeft(r.Left, o.asked) //by TestLogOfLocks of ./cell
	o.locks.noteLeft(r.Left, o.asked)
	// 2. The session or the handle that the command itself has made or closed. A handle is
	// closed before claims are answered (3): who waits through it is refused, and not
	// offered what it held.
	o.madeOrClosed(c, r)
	// 3. Claims that have an answer leave their queues, and
	// 4. so does a request that was withdrawn; both before those that have none are offered
	// the lock again (8).
	o.claimsAnswered(r)
	if c.Cancel != nil {
		o.requestCancelled(c.Cancel, r)
	}
	// 5. Lock-delays run from now on, before a place in the queue is told (10).
	o.locksDelayed(r)
	// 6. Changes of nodes are told. What their author has of a node it deleted is forgotten
	// after that: until then its name counts as changing.
	o.nodesChanged(c, r)
	// 7. Holders and sessions are told what is taken from them: after the grants (3), for a
	// holder may have become one in the same entry.
	o.takenAway(r)
	// 8. Whoever was named in the command and has no answer is not on the way to a grant any
	// more. Before 10: nobody is offered a lock who counts as being offered it.
	o.offers.withdrawOffers(c, false)
	// 9. Locks that nobody has, told before they are offered (10), so that the next holder's
	// event comes after.
	o.events.tellVacant(r)
	// 10. What is free is offered, last: by what the queues say when all of this is observed.
	//mutant: for _, name := range slices.Concat(r.Free, r.Delayed) {
	for _, name := range slices.Concat(r.Free, r.Delayed, joinable(r.Claims)) { // readers may share a lock that readers left delayed
		o.offers.offerLock(name)
		o.epoch.mu.pause(o.tables.queues.stepsOf(name))
	}
}

// madeOrClosed observes what a command did to the session or the handle that it names.
func (o *observer) madeOrClosed(c raftfsm.Command, r raftfsm.Result) {
	switch {
	case c.RaiseLease != nil:
		delete(o.sessions.raising, c.RaiseLease.Session)
	case r.Code() != api.OK:
	case c.CreateSession != nil && o.tables.boxes.byID[r.Session] == nil:
		now := o.epoch.clock()
		o.tables.leases.Start(r.Session, c.CreateSession.Lease, now)
		o.tables.boxes.add(r.Session, c.CreateSession.Principal, o.tables.usages.begin(now, true))
		o.noteOpened(r.Session, c.CreateSession)
	case r.Restored:
		o.restored(c.Restore)
	case r.GaveUp:
		o.restoreGivenUp(c.Restore)
	case c.Restore != nil && c.Restore.Seal != nil:
		o.restoreSealed(c.Restore.Mutation.Session)
	case c.Open != nil && r.Stat != nil:
		o.files.bindOpened(c.Open, r.Stat)
	case c.Close != nil:
		o.files.handleClosed(namespace.Owner{Session: c.Close.Mutation.Session, Handle: c.Close.Handle})
	}
}

// claimsAnswered takes requests that were answered out of their queues. epoch.mu is held,
// and released in between.
func (o *observer) claimsAnswered(r raftfsm.Result) {
	var granted namespace.Ref // to one that is to be told who waits
	for _, claim := range r.Claims {
		if claim.Pending {
			continue
		}
		o.locks.recordGrant(claim, o.asked)
		if o.epoch.proposer.entries.timed() {
			if w := o.tables.queues.get(waiterKey{session: claim.Owner.Session, number: claim.Number}); w != nil {
				w.entry = o.epoch.proposer.entries.last
			}
		}
		o.tables.queues.answerWaiter(waiterKey{session: claim.Owner.Session, number: claim.Number}, claim.Answer)
		if one := o.tables.handles.find(claim.Owner); one != nil && one.wantsConflicts() && claim.Answer.Code() == api.OK && !claim.Again {
			one.told = false
			if granted != claim.Answer.Lock {
				o.events.tellConflicts(granted, nil)
			}
			granted = claim.Answer.Lock
		}
		o.epoch.mu.pause(o.tables.queues.stepsOf(claim.Answer.Lock.Name))
	}
	//mutant: _ = granted
	o.events.tellConflicts(granted, nil)
}

// requestCancelled takes a request that was withdrawn out of its queue, whose lock those
// behind it may have now.
func (o *observer) requestCancelled(c *raftfsm.Cancel, r raftfsm.Result) {
	key := waiterKey{session: c.Mutation.Session, number: c.Mutation.Number}
	if w := o.tables.queues.answerWaiter(key, r.Answer); w != nil {
		o.offers.offerLock(w.lock.Name)
	}
	if r.Code() == api.Cancelled { // it may be an Open that needed no entry
		o.tables.handles.close(namespace.Owner{Session: key.session, Handle: api.HandleID(key.number)})
	}
}

// locksDelayed times the lock-delays that began. epoch.mu is held, and released in
// between.
func (o *observer) locksDelayed(r raftfsm.Result) {
	for _, name := range r.Delayed {
		if d, ok := o.epoch.state().Tree.Delay(name); ok {
			//mutant: o.tables.delays.start(name, d.ID, 0, o.epoch.clock()) //by TestLockPassesOnAfterLeaseAndDelay of ./cell
			o.tables.delays.start(name, d.ID, d.For, o.epoch.clock())
			o.noteDelay(name, d.For)
			o.epoch.mu.pause(1)
		}
	}
}

// nodesChanged tells of changes of nodes, and has those removed that nobody has open.
// epoch.mu is held, and released in between.
func (o *observer) nodesChanged(c raftfsm.Command, r raftfsm.Result) {
	o.remover.add(r.Dying...)
	for _, change := range r.Changes {
		o.events.publishChange(change)
		o.epoch.mu.pause(1)
		if c.Txn != nil && change.Kind == namespace.Removed {
			o.tables.copyset.forgetOwn(c.Txn.Mutation.Session, change.Node.Name)
		}
	}
	if c.Delete != nil && len(r.Changes) > 0 {
		o.tables.copyset.forgetOwn(c.Delete.Mutation.Session, c.Delete.Node.Name)
	}
}

// takenAway tells those from whom locks or sessions are taken. epoch.mu is held, and
// released in between.
func (o *observer) takenAway(r raftfsm.Result) {
	for _, revocation := range r.Revoked {
		o.revocations.noteRevocation(revocation, o.asked)
		o.revocations.tellHolders(revocation)
	}
	for _, id := range r.Terminating {
		o.revocations.terminateSession(id)
		o.epoch.mu.pause(1)
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
	o.revocations.dropSession(end.Session)
	o.epoch.mu.pause(o.tables.recalls.acknowledge(end.Session, math.MaxUint64))
	if box := o.tables.boxes.byID[end.Session]; box != nil {
		o.tables.usages.sessionEnded(end.Principal, box.usage, end.Reason, o.epoch.clock())
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
	for w := range o.tables.queues.ofSession(end.Session) {
		o.tables.queues.failWaiter(w.key(), gone)
		o.epoch.mu.pause(o.tables.queues.stepsOf(w.lock.Name))
	}
	o.epoch.metrics.SessionEnded(end.Reason, o.tables.leases.CountUnheard())
	o.noteEnded(end)
}

// inDoubt reports whether an entry that came to that error may be committed yet.
func inDoubt(err error) bool {
	code := api.CodeOf(err)
	return code != api.NotMaster && code != api.Unavailable
}

// unproposed takes note that a command of somebody's was not, or perhaps not (doubt),
// committed: what it was to do is tried again on the next tick.
func (o *observer) unproposed(c raftfsm.Command, doubt bool) {
	o.offers.withdrawOffers(c, doubt)
	switch {
	case c.Cancel != nil:
		if w := o.offers.refusedWaiter(c.Cancel); w != nil {
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
			//mutant: _ = end
			o.sessions.endLater(end)
		}
	case c.RaiseLease != nil:
		delete(o.sessions.raising, c.RaiseLease.Session)
	case c.EndDelay != nil:
		o.tables.delays.start(c.EndDelay.Name, c.EndDelay.ID, 0, o.epoch.clock())
	case c.Evict != nil:
		o.tables.outbox.putEviction(*c.Evict)
	}
}

// noteDelay notes that a lock-delay runs.
func (o *observer) noteDelay(name api.Name, delay time.Duration) {
	if o.epoch.journal.admits(lockDelayed, slog.LevelInfo) {
		o.epoch.journal.note(lockDelayed, slog.LevelInfo, "lock delayed: its holder failed",
			slog.String("path", o.epoch.path(name)), slog.Duration("lock_delay", delay))
	}
}

// noteOpened notes that a session has begun. Most clients of a cell open one for each command, so it is for who debugs.
func (o *observer) noteOpened(id api.SessionID, c *raftfsm.CreateSession) {
	if o.epoch.journal.admits(sessionOpened, slog.LevelDebug) {
		o.epoch.journal.note(sessionOpened, slog.LevelDebug, "session opened",
			slog.String("session", id.String()), slog.String("principal", c.Principal), slog.String("host", c.Host), slog.Int("pid", c.PID),
			slog.Duration("lease", c.Lease))
	}
}

// noteEnded notes that a session has ended. Most are closed by their clients.
func (o *observer) noteEnded(end raftfsm.Ended) {
	level := slog.LevelInfo
	if end.Reason == api.ByClose {
		level = slog.LevelDebug
	}
	if o.epoch.journal.admits(sessionEnded, level) {
		o.epoch.journal.note(sessionEnded, level, "session ended",
			slog.String("session", end.Session.String()), slog.String("reason", end.Reason.String()),
			slog.String("principal", end.Principal), slog.String("host", end.Host), slog.Int("pid", end.PID))
	}
}
