package master

import (
	"log/slog"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// What is said of locks and sessions, with the fields that docs/logs.md lists. All of these are called while what the log
// did is observed, with epoch.mu held, and put values into the journal.

// noteAsked is note with the request of a client that has caused it, if one has.
func (j *journal) noteAsked(asked steps.RequestID, o occasion, text string, attrs ...slog.Attr) {
	if asked != 0 {
		attrs = append(attrs, slog.String("request", asked.String()))
	}
	j.note(o, slog.LevelInfo, text, attrs...)
}

// noteGrant notes that a request has the lock that it asked for. waited is for how long it was in the queue of this master.
func (l *Locks) noteGrant(claim raftfsm.ClaimResult, waited time.Duration, asked steps.RequestID) {
	if !l.epoch.journal.admits(lockGranted, slog.LevelInfo) {
		return
	}
	l.epoch.journal.noteAsked(asked, lockGranted, "a lock is granted",
		slog.String("path", l.epoch.path(claim.Answer.Lock.Name)), slog.String("session", claim.Owner.Session.String()),
		slog.String("principal", l.epoch.principal(claim.Owner.Session)), slog.Uint64("token", uint64(claim.Answer.Generation)),
		slog.String("mode", claim.Answer.Mode.String()), slog.Duration("waited", waited))
}

// noteLeft notes that holders have let go of locks, or lost them. It comes before the next grant of these is recorded: it
// says for how long they were held.
func (l *Locks) noteLeft(left []namespace.Left, asked steps.RequestID) {
	for _, one := range left {
		h := one.Holding
		what, text := lockLost, "a lock is lost"
		if h.End == api.ByClose {
			what, text = lockReleased, "a lock is released"
		}
		if l.epoch.journal.admits(what, slog.LevelInfo) {
			attrs := []slog.Attr{
				slog.String("path", l.epoch.path(one.Lock.Name)), slog.String("session", h.Session.String()), slog.String("principal", h.Principal),
				slog.Uint64("token", uint64(h.Generation)), slog.String("mode", h.Mode.String()), slog.String("reason", h.End.String()),
			}
			if since, known := l.holdTimes.heldSince(one.Lock.Name, h.Generation); known {
				attrs = append(attrs, slog.Duration("held", l.epoch.clock().Sub(since)))
			}
			if what == lockLost {
				attrs = append(attrs, slog.Duration("lock_delay", h.Delay))
			}
			l.epoch.journal.noteAsked(asked, what, text, attrs...)
		}
		l.epoch.mu.pause(1)
	}
}

// noteDeadlock notes that a request waits for itself, in a cycle of so many steps, and is refused.
func (g *waitGraph) noteDeadlock(w *waiter, steps int) {
	if g.epoch.journal.admits(lockDeadlock, slog.LevelInfo) {
		g.epoch.journal.noteAsked(w.request, lockDeadlock, "a request for a lock waits for itself: it is refused",
			slog.String("path", g.epoch.path(w.lock.Name)), slog.String("session", w.claim.Mutation.Session.String()),
			slog.String("principal", w.who), slog.Int("steps", steps))
	}
}

// noteDelay notes that a lock-delay runs.
func (o *observer) noteDelay(name api.Name, delay time.Duration) {
	if o.epoch.journal.admits(lockDelayed, slog.LevelInfo) {
		o.epoch.journal.note(lockDelayed, slog.LevelInfo, "lock delayed: its holder failed",
			slog.String("path", o.epoch.path(name)), slog.Duration("lock_delay", delay))
	}
}

// noteRevocation notes that a lock is being taken away from its holders.
func (r *revocations) noteRevocation(lost namespace.Revocation, asked steps.RequestID) {
	if r.epoch.journal.admits(lockRevoked, slog.LevelInfo) {
		r.epoch.journal.noteAsked(asked, lockRevoked, "lock revoked",
			slog.String("path", r.epoch.path(lost.Lock.Name)), slog.Uint64("token", uint64(lost.Generation)),
			slog.String("reason", lost.By.Break()), slog.Int("holders", len(lost.Holders)))
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

// noteEnding notes that a session is extended no more, and ends when its client has heard of it.
func (r *revocations) noteEnding(id api.SessionID, principal, why string) {
	if r.epoch.journal.admits(sessionEnding, slog.LevelInfo) {
		r.epoch.journal.note(sessionEnding, slog.LevelInfo, "session is being ended",
			slog.String("session", id.String()), slog.String("principal", principal), slog.String("reason", why))
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
