package master

import (
	"context"
	"log/slog"

	"github.com/chubbylock/chubby/raftfsm"
)

// RestoreProgress is how far the restore of a backup has come.
type RestoreProgress struct {
	Restored bool
	Sessions int // that have to end before the backup can be restored
}

// Restore does one step of restoring the cell from a backup. It finishes when all other sessions have ended; until
// then the answer has their number, and nothing is proposed.
func (m *Master) Restore(ctx context.Context, c raftfsm.Restore) (RestoreProgress, error) {
	state := m.epoch.state()
	if by, sealed := state.Restoring(); c.Finish && sealed && by == c.Mutation.Session && state.Sessions.Len() > 1 {
		return RestoreProgress{Sessions: state.Sessions.Len() - 1}, nil
	}
	_, err := m.epoch.propose(ctx, raftfsm.Command{Restore: &c})
	return RestoreProgress{Restored: err == nil && c.Finish}, err
}

// restored forgets what is known of nodes that the cell had before a backup was restored: the handles of the session
// that restored it, which is the only one. The lock-delays are the same as before.
func (o *observer) restored(c *raftfsm.Restore) {
	id := c.Mutation.Session
	for !o.tables.handles.drop(id, maxSteps) {
		o.epoch.mu.pause(maxSteps)
	}
	of := o.epoch.state().Restored
	what := "the cell was restored from a backup"
	if of.Source.Recovered != "" {
		what = "the cell was restored from what was left at one replica of a cell without a majority: changes that only the others had are lost"
	}
	o.epoch.journal.say(slog.LevelWarn, what,
		slog.String("event", "cell_restored"), slog.String("session", id.String()), slog.Uint64("counter", of.Counter), slog.Uint64("index", of.Source.Index),
		slog.Int64("taken_unix", of.Source.TakenUnix), slog.String("recovered_from", of.Source.Recovered))
}
