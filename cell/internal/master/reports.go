package master

import (
	"log/slog"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// reports is where the parts of a master say what happened: it counts that in the metrics, the hold times and
// the usages, and logs it. The tables know none of these. epoch.mu is held; no method waits. asked is the
// client's request that caused it, or 0.
type reports struct {
	epoch     *epoch // its clock, and its names
	metrics   Metrics
	journal   *journal
	holdTimes *holdTimes
	usages    *usages
}

func newReports(e *epoch, metrics Metrics, log *slog.Logger) *reports {
	return &reports{epoch: e, metrics: metrics, journal: newJournal(log), holdTimes: newHoldTimes(metrics.TurnEnded), usages: newUsages()}
}

// sessionInherited is called for each session of an earlier master.
func (r *reports) sessionInherited(id api.SessionID, now session.Instant) {
	r.usages.ofSession[id] = r.usages.begin(now, false)
}

// sessionOpened logs the begin of a session. Most clients open one for each command, so it is for debugging.
func (r *reports) sessionOpened(id api.SessionID, c *raftfsm.CreateSession, now session.Instant) {
	r.usages.ofSession[id] = r.usages.begin(now, true)
	if r.journal.admits(sessionOpened, slog.LevelDebug) {
		r.journal.note(0, sessionOpened, slog.LevelDebug, "session opened",
			slog.String("session", id.String()), slog.String("principal", c.Principal), slog.String("host", c.Host), slog.Int("pid", c.PID),
			slog.Duration("lease", c.Lease))
	}
}

// sessionEnding: the lease of a session has stopped.
func (r *reports) sessionEnding(id api.SessionID, principal, why string) {
	if r.journal.admits(sessionEnding, slog.LevelInfo) {
		r.journal.note(0, sessionEnding, slog.LevelInfo, "session is being ended",
			slog.String("session", id.String()), slog.String("principal", principal), slog.String("reason", why))
	}
}

// sessionEnded logs the end of a session. Most are closed by their clients.
func (r *reports) sessionEnded(end raftfsm.Ended, unheard int) {
	r.usages.sessionEnded(end.Principal, r.usages.ofSession[end.Session], end.Reason, r.epoch.clock())
	delete(r.usages.ofSession, end.Session)
	r.metrics.SessionEnded(end.Reason, unheard)
	level := slog.LevelInfo
	if end.Reason == api.ByClose {
		level = slog.LevelDebug
	}
	if r.journal.admits(sessionEnded, level) {
		r.journal.note(0, sessionEnded, level, "session ended",
			slog.String("session", end.Session.String()), slog.String("reason", end.Reason.String()),
			slog.String("principal", end.Principal), slog.String("host", end.Host), slog.Int("pid", end.PID))
	}
}

// lockGranted: by is the handle, if the master knows it, and w the request, if it waited here.
func (r *reports) lockGranted(claim raftfsm.ClaimResult, by *openHandle, w *waiter, asked steps.RequestID) {
	name, now := claim.Answer.Lock.Name, r.epoch.clock()
	next := holdTime{generation: claim.Answer.Generation}
	if by != nil {
		next.cached, next.delays = by.CachesLock, by.Delay > 0
	}
	r.holdTimes.beginHold(name, next, now)
	since := now
	if w != nil {
		since, asked = w.since, w.request
		r.metrics.LockGranted(name, now.Sub(since), w.trace)
	}
	if !claim.Again && r.journal.admits(lockGranted, slog.LevelInfo) {
		r.journal.note(asked, lockGranted, slog.LevelInfo, "a lock is granted",
			slog.String("path", r.epoch.path(name)), slog.String("session", claim.Owner.Session.String()),
			slog.String("principal", r.epoch.principal(claim.Owner.Session)), slog.Uint64("token", uint64(claim.Answer.Generation)),
			slog.String("mode", claim.Answer.Mode.String()), slog.Duration("waited", now.Sub(since)))
	}
}

// lockLeft: a holder has released or lost its lock, before lockGranted of the next.
func (r *reports) lockLeft(one namespace.Left, asked steps.RequestID) {
	h := one.Holding
	turn, known := r.holdTimes.current(one.Lock.Name, h.Generation)
	held := r.epoch.clock().Sub(turn.began)
	if known && !turn.cached && h.Mode == api.Exclusive {
		//mutant: r.usages.ofSession[h.Session].held(one.Lock.Name, held, r.usages.unread.has(h.Generation))
		r.usages.ofSession[h.Session].held(one.Lock.Name, held, !turn.delays && r.usages.unread.has(h.Generation))
	}
	what, text := lockLost, "a lock is lost"
	if h.End == api.ByClose {
		what, text = lockReleased, "a lock is released"
	}
	if !r.journal.admits(what, slog.LevelInfo) {
		return
	}
	attrs := []slog.Attr{
		slog.String("path", r.epoch.path(one.Lock.Name)), slog.String("session", h.Session.String()), slog.String("principal", h.Principal),
		slog.Uint64("token", uint64(h.Generation)), slog.String("mode", h.Mode.String()), slog.String("reason", h.End.String()),
	}
	if known {
		attrs = append(attrs, slog.Duration("held", held))
	}
	if what == lockLost {
		attrs = append(attrs, slog.Duration("lock_delay", h.Delay))
	}
	r.journal.note(asked, what, slog.LevelInfo, text, attrs...)
}

func (r *reports) lockDelayed(name api.Name, d namespace.Delay) {
	if r.journal.admits(lockDelayed, slog.LevelInfo) {
		r.journal.note(0, lockDelayed, slog.LevelInfo, "lock delayed: its holder failed",
			slog.String("path", r.epoch.path(name)), slog.Duration("lock_delay", d.For))
	}
}

func (r *reports) lockRevoked(lost namespace.Revocation, asked steps.RequestID) {
	if r.journal.admits(lockRevoked, slog.LevelInfo) {
		r.journal.note(asked, lockRevoked, slog.LevelInfo, "lock revoked",
			slog.String("path", r.epoch.path(lost.Lock.Name)), slog.Uint64("token", uint64(lost.Generation)),
			slog.String("reason", lost.By.Break()), slog.Int("holders", len(lost.Holders)))
	}
}

// deadlock: a request waits for itself, in a cycle of that many steps.
func (r *reports) deadlock(w *waiter, steps int) {
	if r.journal.admits(lockDeadlock, slog.LevelInfo) {
		r.journal.note(w.request, lockDeadlock, slog.LevelInfo, "a request for a lock waits for itself: it is refused",
			slog.String("path", r.epoch.path(w.lock.Name)), slog.String("session", w.claim.Mutation.Session.String()),
			slog.String("principal", w.who), slog.Int("steps", steps))
	}
}
