package master

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// timekeeper does what is due at a time.
type timekeeper struct {
	epoch       *epoch
	tables      *tables.Tables
	offers      *offers
	revocations *revocations
	sessions    *Sessions
	coherence   *coherence
	graph       *waitGraph
	pauses      *pauses

	restoreDue session.Instant // when to give up a restore, unless its author takes a step; epoch.mu guards it
}

// clockLoop is the only place where a master acts because time has passed. It ends expired sessions and
// lock-delays, releases changes that wait for expired cache leases, forgets absent waiters, and retries
// proposals. It wakes for the next of these, and regularly.
func (t *timekeeper) clockLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now, forgiven := t.pauses.take()
		if forgiven > 0 {
			t.epoch.reports.journal.say(slog.LevelWarn, "the replica was stopped, or starved of processor time: every lease is extended",
				slog.String("event", "process_paused"), slog.Duration("extended", forgiven))
		}
		timer.Reset(t.tick(now, forgiven))
	}
}

// pauses records the process's pauses, seen by clockLoop, before it ends any lease, and by watch. Without
// watch, clockLoop would take a pause for work if it was awake when it began, perhaps waiting for the mutex.
// Then sessions with shorter leases would end.
type pauses struct {
	clock session.Clock
	mu    sync.Mutex // guards found, and orders the looks by clock time
	found *session.Pauses
}

func newPauses(clock session.Clock) *pauses {
	return &pauses{clock: clock, found: session.NewPauses(clock())}
}

// take reads the clock, and returns it with the pauses not yet taken.
func (p *pauses) take() (now session.Instant, forgiven time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now = p.clock()
	p.found.Look(now)
	return now, p.found.Take()
}

func (p *pauses) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found.Look(p.clock())
}

// watch reads the clock often enough, whatever clockLoop waits for.
func (p *pauses) watch(ctx context.Context) {
	ticker := time.NewTicker(session.MaxTick / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.look()
		}
	}
}

// maxForgotten bounds the absent waiters that one tick drops.
const maxForgotten = 256

// affordable returns how many sessions to end in one entry: those that together own at most maxOwned nodes,
// and at least one.
func (t *timekeeper) affordable(mu hold, ends []raftfsm.End) int {
	state, owned := t.epoch.state(), 0
	for i, end := range ends {
		for range state.Tree.OwnedBy(end.Session) {
			if owned++; owned > maxOwned {
				return max(i, 1)
			}
			mu.pause(1)
		}
	}
	return len(ends)
}

// tick does what is due at now, with forgiven for pauses, and returns how long to sleep.
func (t *timekeeper) tick(now session.Instant, forgiven time.Duration) time.Duration {
	mu := t.epoch.mu.hold()
	defer mu.end()
	t.epoch.reports.usages.advance(now)
	expired := t.tables.Leases.Tick(now, forgiven, tables.MaxExpiries)
	ending, more := t.tables.Outbox.TakeEnds()
	ending = append(ending, t.revocations.takeDue(now)...)
	remembers := t.epoch.state().Level >= raftfsm.HistoryLevel
	for _, id := range expired {
		//mutant: ending = append(ending, raftfsm.End{Session: id, Reason: api.ByExpiry, FailOver: false && remembers}) //by TestHistoryOfALock of ./cell
		ending = append(ending, raftfsm.End{Session: id, Reason: api.ByExpiry, FailOver: remembers && t.tables.Leases.Unheard(id)})
	}
	ends := t.affordable(mu, ending)
	for _, end := range ending[ends:] {
		t.sessions.endLater(end)
	}
	for left := ending[:ends]; len(left) > 0; {
		var c raftfsm.Command
		c, left = t.offers.endCommand(left)
		t.epoch.submit(c)
		mu.pause(1)
	}

	t.endIdleRestore(now, forgiven)
	delays := t.tables.Delays.Due(now)
	for _, over := range delays {
		t.offers.endDelay(over)
		mu.pause(t.tables.Queues.StepsOf(over.Name))
	}
	more = t.coherence.endLapsed(mu, now, maxLapses) || more
	more = t.tables.Queues.DropAbsent(now, maxForgotten) || more
	requests, left := t.tables.Outbox.TakeRequests()
	more = more || left
	for _, w := range requests {
		t.offers.askLog(w)
	}
	evictions, left := t.tables.Outbox.TakeEvictions()
	more = more || left
	for _, c := range evictions {
		//mutant: _ = c
		t.revocations.evict(mu, *c)
	}
	locks, left := t.tables.Outbox.TakeLocks()
	more = more || left
	for _, name := range locks {
		t.offers.offerLock(name)
		mu.pause(t.tables.Queues.StepsOf(name))
	}
	t.graph.lookAgain(mu, now)
	if len(expired) == tables.MaxExpiries || len(delays) == tables.MaxDue || ends < len(ending) || more {
		return time.Millisecond
	}
	next := now.Add(session.MaxTick / 2)
	if due, ok := t.tables.Leases.Next(); ok {
		next = min(next, due)
	}
	next = earliest(&t.tables.Delays.Ends, next)
	next = earliest(&t.revocations.lastLeases, next)
	next = earliest(&t.tables.Copyset.Lapses, next)
	return max(next.Sub(now), time.Millisecond)
}

// earliest returns the time of the next appointment, at most then.
func earliest[K comparable](of *session.Timetable[K], then session.Instant) session.Instant {
	if _, at, ok := of.Next(); ok {
		return min(at, then)
	}
	return then
}

// restoreStepped records a step of the restore's author, or a retry of one.
func (t *timekeeper) restoreStepped() {
	t.epoch.mu.Lock()
	defer t.epoch.mu.Unlock()
	t.restoreDue = t.epoch.clock().Add(restoreIdle)
}

// endIdleRestore gives up an idle restore. epoch.mu is held.
func (t *timekeeper) endIdleRestore(now session.Instant, forgiven time.Duration) {
	by, _ := t.epoch.state().Restoring()
	switch {
	case by == 0:
		t.restoreDue = never
	case t.restoreDue == never: // it was begun, perhaps at another master
		t.restoreDue = now.Add(restoreIdle)
	case t.restoreDue.Add(forgiven) > now:
		t.restoreDue = t.restoreDue.Add(forgiven)
	default:
		t.restoreDue = now.Add(time.Second) // until the next try
		t.epoch.submit(raftfsm.Command{Restore: &raftfsm.Restore{GiveUp: true, Of: by}})
	}
}

// restoreIdle is how long a restore waits for its author's next step before it is given up. No other client
// may be there to end it, because no session begins once it is sealed. A new master waits as long again.
const restoreIdle = time.Minute

// never is the end of a restore that does not run.
const never = session.Instant(math.MinInt64)
