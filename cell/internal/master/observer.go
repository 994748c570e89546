package master

import (
	"log/slog"
	"math"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// observer applies the results of the log, and failures, to the tables. Only here do commands change them.
type observer struct {
	epoch       *epoch
	tables      *tables.Tables
	events      *publisher
	offers      *offers
	revocations *revocations
	remover     *remover
	sessions    *Sessions
	files       *Files
	locks       *Locks

	asked  steps.RequestID // of the observed command, for the log; 0 if it is the master's own
	before *raftfsm.State  // as of the last observed entry; nil before the first
}

// observe applies an entry's results, or its failure, to the tables: ended sessions, grants, lock-delays,
// events. The proposer calls it in commit order.
//
// An entry may be much work: the end of many sessions with many handles, or an event for very many watchers.
// So observe pauses between and within commands, and other goroutines see a partly observed entry. For them
// that is nothing new: the state is always ahead of the tables, and a part of an entry looks like a smaller
// one. What holds:
//   - the next entry is applied when this one is observed, so the state does not change meanwhile, while this
//     replica leads;
//   - callers go on when the whole entry is observed;
//   - an ended session first loses lease and mailbox, in one hold, so that nothing new is entered for it;
//   - the events of one session are in commit order, because only observe posts events of changes.
func (o *observer) observe(batch []*proposal, results []raftfsm.Result, err error) {
	mu := o.epoch.mu.hold()
	defer mu.end()
	o.epoch.reports.metrics.Proposed(len(batch), err)
	for i, one := range batch {
		if err != nil {
			o.unproposed(one.command, inDoubt(err))
			if one.command.Close != nil {
				o.offers.closeEnded(mu, one.command.Close)
			}
		} else {
			o.asked = one.request
			o.observeOne(mu, one.command, results[i])
		}
		mu.pause(1)
	}
	o.before = o.epoch.state()
}

// observeOne observes one command. The order of the steps matters; each says what it has to follow.
func (o *observer) observeOne(mu hold, c raftfsm.Command, r raftfsm.Result) {
	// 1. Sessions that have ended, first: nothing below enters anything for a session without lease and
	// mailbox.
	for _, end := range r.Ended {
		o.sessionEnded(mu, end)
	}
	// Losses are logged before the next grant (3) overwrites how long the locks were held.
	//mutant: defer o.locksLeft(mu, r.Left) //by TestLogOfLocks of ./cell
	o.locksLeft(mu, r.Left)
	// 2. The command's own session or handle. A handle closes before claims are answered (3): its waiters are
	// refused, and not offered its locks.
	o.madeOrClosed(mu, c, r)
	// 3. Answered claims leave their queues, and 4. so does a cancelled request; both before pending claims
	// are offered the lock again (8).
	o.claimsAnswered(mu, r)
	if c.Cancel != nil {
		o.requestCancelled(c.Cancel, r)
	}
	// 5. Lock-delays run from now on, before a place in the queue is told (10).
	o.locksDelayed(mu, r)
	// 6. Events of node changes. Only then is the author's copy of a deleted node forgotten: until then its
	// name counts as changing.
	o.nodesChanged(mu, c, r)
	o.countWrites(mu, c, r)
	// 7. Holders and sessions learn of revocations after the grants (3), because a holder may be of the same
	// entry.
	o.takenAway(mu, r)
	// 8. Claims without an answer are no longer offered: before 10, which skips offered ones.
	o.offers.withdrawOffers(c, false)
	if c.Close != nil {
		o.offers.closeEnded(mu, c.Close)
	}
	// 9. Vacant locks, before they are offered (10), so that the next holder's event comes after.
	o.events.tellVacant(mu, r)
	// 10. Free locks are offered last, to the queues as they are after all of this.
	//mutant: for _, name := range slices.Concat(r.Free, r.Delayed) {
	for _, name := range slices.Concat(r.Free, r.Delayed, joinable(r.Claims)) { // readers may join a lock that readers left delayed
		o.offers.offerLock(name)
		mu.pause(o.tables.Queues.StepsOf(name))
	}
}

// madeOrClosed observes what a command did to its session or handle.
func (o *observer) madeOrClosed(mu hold, c raftfsm.Command, r raftfsm.Result) {
	switch {
	case c.RaiseLease != nil:
		delete(o.sessions.raising, c.RaiseLease.Session)
	case r.Code() != api.OK:
	case c.CreateSession != nil && o.tables.Boxes.ByID[r.Session] == nil:
		now := o.epoch.clock()
		o.tables.Leases.Start(r.Session, c.CreateSession.Lease, now)
		o.tables.Boxes.Add(r.Session, c.CreateSession.Principal)
		o.epoch.reports.sessionOpened(r.Session, c.CreateSession, now)
	case r.Restored:
		o.restored(mu, c.Restore)
	case r.GaveUp:
		o.restoreGivenUp(c.Restore)
	case c.Restore != nil && c.Restore.Seal != nil:
		o.restoreSealed(c.Restore.Mutation.Session)
	case c.Open != nil && r.Stat != nil:
		o.files.bindOpened(c.Open, r.Stat)
	case c.Close != nil:
		o.files.handleClosed(mu, namespace.Owner{Session: c.Close.Mutation.Session, Handle: c.Close.Handle})
	}
}

// claimsAnswered takes answered requests out of their queues.
func (o *observer) claimsAnswered(mu hold, r raftfsm.Result) {
	var granted namespace.Ref // to a handle that wants events about waiters
	for _, claim := range r.Claims {
		if claim.Pending {
			continue
		}
		key, ok := tables.WaiterKey{Session: claim.Owner.Session, Number: claim.Number}, claim.Answer.Code() == api.OK
		if ok {
			o.epoch.reports.lockGranted(claim, o.tables.Handles.Find(claim.Owner), o.tables.Queues.Get(key), o.asked)
			o.events.tellAcquired(mu, claim)
		}
		if w := o.tables.Queues.Get(key); w != nil {
			w.Entry = o.epoch.proposer.entries.last
		}
		o.tables.Queues.AnswerWaiter(key, claim.Answer)
		if one := o.tables.Handles.Find(claim.Owner); one != nil && one.WantsConflicts() && ok && !claim.Again {
			one.Told = false
			if granted != claim.Answer.Lock {
				o.events.tellConflicts(mu, granted, nil)
			}
			granted = claim.Answer.Lock
		}
		mu.pause(o.tables.Queues.StepsOf(claim.Answer.Lock.Name))
	}
	//mutant: _ = granted
	o.events.tellConflicts(mu, granted, nil)
}

// requestCancelled takes a cancelled request out of its queue, and offers the lock to the next waiters.
func (o *observer) requestCancelled(c *raftfsm.Cancel, r raftfsm.Result) {
	key := tables.WaiterKey{Session: c.Mutation.Session, Number: c.Mutation.Number}
	if w := o.tables.Queues.AnswerWaiter(key, r.Answer); w != nil {
		o.offers.offerLock(w.Lock.Name)
	}
	if r.Code() == api.Cancelled { // it may be an Open without an entry
		o.epoch.reports.handleClosed(o.tables.Handles, namespace.Owner{Session: key.Session, Handle: api.HandleID(key.Number)})
	}
}

func (o *observer) locksLeft(mu hold, left []namespace.Left) {
	for _, one := range left {
		o.epoch.reports.lockLeft(one, o.asked)
		mu.pause(1)
	}
}

// locksDelayed times the lock-delays that began.
func (o *observer) locksDelayed(mu hold, r raftfsm.Result) {
	for _, name := range r.Delayed {
		if d, ok := o.epoch.state().Tree.Delay(name); ok {
			//mutant: o.tables.Delays.Start(name, d.ID, 0, o.epoch.clock()) //by TestLockPassesOnAfterLeaseAndDelay of ./cell
			o.tables.Delays.Start(name, d.ID, d.For, o.epoch.clock())
			o.epoch.reports.lockDelayed(name, d)
			mu.pause(1)
		}
	}
}

// nodesChanged publishes changes of nodes, and hands dying nodes to the remover.
func (o *observer) nodesChanged(mu hold, c raftfsm.Command, r raftfsm.Result) {
	o.remover.add(r.Dying...)
	for _, change := range r.Changes {
		o.events.publishChange(mu, change)
		mu.pause(1)
		if c.Txn != nil && change.Kind == namespace.Removed {
			o.tables.Copyset.ForgetOwn(c.Txn.Mutation.Session, change.Node.Name)
		}
	}
	if c.Delete != nil && len(r.Changes) > 0 {
		o.tables.Copyset.ForgetOwn(c.Delete.Mutation.Session, c.Delete.Node.Name)
	}
}

// countWrites counts what may be misuse of the writes of a command that changed something: a retry did not.
func (o *observer) countWrites(mu hold, c raftfsm.Command, r raftfsm.Result) {
	if len(r.Changes) == 0 {
		return
	}
	count := func(by session.Mutation, name api.Name, contents []byte) {
		var was *namespace.Node
		if o.before != nil {
			was, _ = o.before.Tree.Get(name)
		}
		o.epoch.reports.usages.ofSession[by.Session].wrote(name, was, contents)
		mu.pause(1)
	}
	if w := c.SetContents; w != nil {
		count(w.Mutation, w.Node.Name, w.Contents)
	}
	if t := c.Txn; t != nil {
		for _, one := range t.Operations {
			if !one.Delete {
				count(t.Mutation, one.Name, one.Contents)
			}
		}
	}
}

// takenAway tells sessions that they lose locks or end.
func (o *observer) takenAway(mu hold, r raftfsm.Result) {
	for _, revocation := range r.Revoked {
		o.epoch.reports.lockRevoked(revocation, o.asked)
		o.revocations.tellHolders(mu, revocation)
	}
	for _, id := range r.Terminating {
		o.revocations.terminateSession(mu, id)
		mu.pause(1)
	}
}

// joinable returns the locks granted in shared mode: more waiters may get them than one command had room for.
func joinable(claims []raftfsm.ClaimResult) []api.Name {
	var names []api.Name
	for _, claim := range claims {
		if !claim.Pending && claim.Answer.Code() == api.OK && claim.Answer.Mode == api.Shared {
			names = append(names, claim.Answer.Lock.Name)
		}
	}
	return slices.Compact(names)
}

// sessionEnded forgets a session and answers its waiters.
func (o *observer) sessionEnded(mu hold, end raftfsm.Ended) {
	o.tables.Leases.Remove(end.Session)
	o.revocations.dropSession(end.Session)
	if box := o.tables.Boxes.ByID[end.Session]; box != nil {
		box.Discard()
		delete(o.tables.Boxes.ByID, end.Session)
		mu.pause(o.tables.Recalls.Acknowledge(box, math.MaxUint64))
	}
	for !o.tables.Handles.Drop(end.Session, maxSteps) {
		mu.pause(maxSteps)
	}
	for !o.tables.Copyset.Drop(end.Session, maxSteps) {
		mu.pause(maxSteps)
	}
	gone := api.Errorf(api.SessionExpired, "the session has ended: %v", end.Reason)
	for w := range o.tables.Queues.OfSession(end.Session) {
		o.tables.Queues.FailWaiter(w.Key(), gone)
		mu.pause(o.tables.Queues.StepsOf(w.Lock.Name))
	}
	o.epoch.reports.sessionEnded(end, o.tables.Leases.CountUnheard())
}

// inDoubt reports whether an entry with that error may still be committed.
func inDoubt(err error) bool {
	code := api.CodeOf(err)
	return code != api.NotMaster && code != api.Unavailable
}

// unproposed records that a command was not, or perhaps not (doubt), committed. The next tick tries its work
// again.
func (o *observer) unproposed(c raftfsm.Command, doubt bool) {
	o.offers.withdrawOffers(c, doubt)
	switch {
	case c.Cancel != nil:
		if w := o.offers.refusedWaiter(c.Cancel); w != nil {
			o.tables.Outbox.PutRequest(w)
		}
	case c.Acquire != nil:
		for _, claim := range c.Acquire.Claims {
			if w := o.tables.Queues.Get(tables.WaiterKey{Session: claim.Mutation.Session, Number: claim.Mutation.Number}); w != nil {
				o.tables.Outbox.PutRequest(w)
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
		o.tables.Delays.Start(c.EndDelay.Name, c.EndDelay.ID, 0, o.epoch.clock())
	case c.Evict != nil:
		o.tables.Outbox.PutEviction(*c.Evict)
	}
}

// restoreSealed has the log answer the author's pending requests for locks: they are refused from now on, and
// their nodes will go. epoch.mu is held.
func (o *observer) restoreSealed(id api.SessionID) {
	for w := range o.tables.Queues.OfSession(id) {
		o.tables.Outbox.PutRequest(w)
	}
}

func (o *observer) restoreGivenUp(c *raftfsm.Restore) {
	id, why := c.Mutation.Session, "by its author"
	switch {
	case id != 0:
	case c.Operator != "":
		id, why = c.Of, "by the operator "+c.Operator
	default:
		id, why = c.Of, "no step came for "+restoreIdle.String()
	}
	o.epoch.reports.journal.say(slog.LevelWarn, "a restore was given up: the cell has what it had",
		slog.String("event", "restore_given_up"), slog.String("session", id.String()), slog.String("reason", why))
}

// restored forgets the handles of the only session, which restored the backup: their nodes are gone. The
// lock-delays stay.
func (o *observer) restored(mu hold, c *raftfsm.Restore) {
	id := c.Mutation.Session
	for !o.tables.Handles.Drop(id, maxSteps) {
		mu.pause(maxSteps)
	}
	of := o.epoch.state().Restored
	what := "the cell was restored from a backup"
	if of.Source.Recovered != "" {
		what = "the cell was restored from what was left at one replica of a cell without a majority: changes that only the others had are lost"
	}
	o.epoch.reports.journal.say(slog.LevelWarn, what,
		slog.String("event", "cell_restored"), slog.String("session", id.String()), slog.Uint64("counter", of.Counter), slog.Uint64("index", of.Source.Index),
		slog.Int64("taken_unix", of.Source.TakenUnix), slog.String("recovered_from", of.Source.Recovered))
}
