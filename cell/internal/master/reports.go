package master

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
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

// handleClosed closes a handle, and counts that.
func (r *reports) handleClosed(t *tables.Handles, owner namespace.Owner) {
	if t.Close(owner) {
		r.usages.ofSession[owner.Session].count(countCloses, "")
	}
}

// lockGranted: by is the handle, if the master knows it, and w the request, if it waited here.
func (r *reports) lockGranted(claim raftfsm.ClaimResult, by *tables.OpenHandle, w *tables.Waiter, asked steps.RequestID) {
	name, now := claim.Answer.Lock.Name, r.epoch.clock()
	next := holdTime{generation: claim.Answer.Generation}
	if by != nil {
		next.cached, next.delays = by.CachesLock, by.Delay > 0
	}
	r.holdTimes.beginHold(name, next, now)
	since := now
	if w != nil {
		since, asked = w.Since, w.Request
		r.metrics.LockGranted(name, now.Sub(since), w.Trace)
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
func (r *reports) deadlock(w *tables.Waiter, steps int) {
	if r.journal.admits(lockDeadlock, slog.LevelInfo) {
		r.journal.note(w.Request, lockDeadlock, slog.LevelInfo, "a request for a lock waits for itself: it is refused",
			slog.String("path", r.epoch.path(w.Lock.Name)), slog.String("session", w.Claim.Mutation.Session.String()),
			slog.String("principal", w.Who), slog.Int("steps", steps))
	}
}

// occasion is a frequent kind of event, whose lines are sampled.
type occasion int

// The occasions. docs/logs.md explains their lines.
const (
	lockGranted occasion = iota
	lockReleased
	lockLost
	lockDelayed
	lockRevoked
	lockDeadlock
	sessionOpened
	sessionEnding
	sessionEnded
	occasions
)

// String returns the value of the field event.
func (o occasion) String() string {
	return [...]string{
		"lock_granted", "lock_released", "lock_lost", "lock_delayed", "lock_revoked", "lock_deadlock", "session_opened", "session_ending", "session_ended",
	}[o]
}

// journal is a master's only way to its log. Lines go into a bounded queue, with or without mutexes; one
// goroutine writes them without any. So a blocked log delays no caller. In each sampleTime it writes at most
// maxLines lines of an occasion, and then how many it left out. An occasion without a line costs an addition.
type journal struct {
	log     *slog.Logger
	lines   chan logLine
	counts  [occasions]atomic.Int64 // since the sample began
	dropped atomic.Int64            // lines without room since then
}

// logLine is a queued line. Nothing in it changes.
type logLine struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

const (
	maxLines   = 100              // of one occasion in sampleTime
	sampleTime = 10 * time.Second // shows a whole burst, as after a fail-over
	maxQueued  = 1024             // lines
)

func newJournal(log *slog.Logger) *journal {
	return &journal{log: log, lines: make(chan logLine, maxQueued)}
}

// admits counts an occasion, and reports whether note should write it.
func (j *journal) admits(o occasion, level slog.Level) bool {
	//mutant: return j.log.Enabled(context.Background(), level) && j.counts[o].Add(1) > 0
	return j.log.Enabled(context.Background(), level) && j.counts[o].Add(1) <= maxLines
}

// note writes an admitted occasion, with the client's request that caused it, if any.
func (j *journal) note(asked steps.RequestID, o occasion, level slog.Level, text string, attrs ...slog.Attr) {
	if asked != 0 {
		attrs = append(attrs, slog.String("request", asked.String()))
	}
	j.put(logLine{level: level, text: text, attrs: append([]slog.Attr{slog.String("event", o.String())}, attrs...)})
}

// say writes a line that stays rare, whatever clients do.
func (j *journal) say(level slog.Level, text string, attrs ...slog.Attr) {
	if j.log.Enabled(context.Background(), level) {
		j.put(logLine{level: level, text: text, attrs: attrs})
	}
}

func (j *journal) put(line logLine) {
	select {
	case j.lines <- line:
	default:
		j.dropped.Add(1)
	}
}

// run writes lines until ctx ends; flush writes the rest.
func (j *journal) run(ctx context.Context) {
	sample := time.NewTicker(sampleTime)
	defer sample.Stop()
	for {
		select {
		case line := <-j.lines:
			j.write(line)
		case <-sample.C:
			j.endSample()
		case <-ctx.Done():
			return
		}
	}
}

// flush writes the rest, after run and all callers have ended.
func (j *journal) flush() {
	for {
		select {
		case line := <-j.lines:
			j.write(line)
			continue
		default:
		}
		break
	}
	j.endSample()
}

func (j *journal) write(line logLine) {
	j.log.LogAttrs(context.Background(), line.level, line.text, line.attrs...)
}

// endSample logs how many lines were left out, and restarts the counts.
func (j *journal) endSample() {
	var left []any
	for o := range occasions {
		if n := j.counts[o].Swap(0) - maxLines; n > 0 {
			left = append(left, slog.Int64(o.String(), n))
		}
	}
	dropped, level := j.dropped.Swap(0), slog.LevelInfo
	if dropped > 0 { // lines of an enabled level, so this one needs an enabled level, too
		for _, level = range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			if j.log.Enabled(context.Background(), level) {
				break
			}
		}
	}
	if len(left) > 0 || dropped > 0 {
		j.write(logLine{level: level, text: fmt.Sprintf("lines were left out: of each event there are at most %d in %v", maxLines, sampleTime), attrs: []slog.Attr{
			slog.String("event", "lines_left_out"), slog.Group("left_out", left...), slog.Int64("dropped", dropped),
		}})
	}
}

// Metrics counts what a master does. Its methods are safe for concurrent use and only count; most run with the mutex held.
type Metrics interface {
	Proposed(commands int, err error) // an entry was appended, or with err perhaps not
	SessionBegun()
	SessionEnded(why api.EndReason, unheard int)                 // unheard counts other sessions whose clients have not returned since the takeover
	LeaseExtended(unheard int)                                   // likewise
	LockGranted(name api.Name, wait time.Duration, trace string) // after a wait; trace names that of the request, if it is traced
	// TurnEnded counts how long a lock was held, by one holder or readers together; see holdTimes.
	TurnEnded(name api.Name, held time.Duration)
	ChangeWaited(wait time.Duration) // for clients to drop what they had cached
	Invalidated()                    // a client was told to drop a copy
	EventDropped()                   // because too many waited
	MutexHeld(held time.Duration)    // once for some holds; see pausingMutex
	// TakeoverCleared counts the time until the last client had dropped what an earlier master let it cache.
	TakeoverCleared(took time.Duration)
}
