package master

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Restore does one step of restoring the cell from a backup. It finishes when all other sessions have ended;
// until then it proposes nothing, and returns their number.
func (m *Master) Restore(ctx context.Context, c raftfsm.Restore) (restored bool, sessions int, err error) {
	state := m.epoch.state()
	if by, sealed := state.Restoring(); c.Finish && sealed && by == c.Mutation.Session && state.Sessions.Len() > 1 {
		m.timekeeper.restoreStepped()
		return false, state.Sessions.Len() - 1, nil
	}
	if full := m.coherence.checkRestore(c); full != nil && !m.epoch.isAnswered(c.Mutation) {
		_, err := m.epoch.refuseAs(ctx, c.Mutation, full, nil)
		return false, 0, err
	}
	_, err = m.epoch.propose(ctx, raftfsm.Command{Restore: &c}, nil)
	if err == nil {
		m.timekeeper.restoreStepped()
	}
	return err == nil && c.Finish, 0, err
}

// GiveUpRestore gives up the restore of a session, for an operator known by its connection: there may be no
// other session. It names the session, so that a retry after a lost answer gives up no other restore.
func (m *Master) GiveUpRestore(ctx context.Context, principal string, of api.SessionID) error {
	if _, err := m.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	state := m.epoch.state()
	if err := state.PermitOperator(principal); err != nil {
		return err
	}
	by, _ := state.Restoring()
	if by == 0 || by != of {
		return api.Errorf(api.NotFound, "no backup is being restored; see chubbyctl cell status")
	}
	_, err := m.epoch.propose(ctx, raftfsm.Command{Restore: &raftfsm.Restore{GiveUp: true, Of: by, Operator: principal}}, nil)
	return err
}

// restoreIdle is how long a restore waits for its author's next step before it is given up. No other client
// may be there to end it, because no session begins once it is sealed. A new master waits as long again.
const restoreIdle = time.Minute

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

// never is the end of a restore that does not run.
const never = session.Instant(math.MinInt64)

// restoreSealed has the log answer the author's pending requests for locks: they are refused from now on, and
// their nodes will go. epoch.mu is held.
func (o *observer) restoreSealed(id api.SessionID) {
	for w := range o.tables.queues.ofSession(id) {
		o.tables.outbox.putRequest(w)
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
	for !o.tables.handles.drop(id, maxSteps) {
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
