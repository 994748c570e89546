package master

import (
	"context"
	"log/slog"
	"time"
)

// Times of check points.
const (
	checkEvery = 3 * time.Minute  // between two, if nobody asks for one
	checkPause = 10 * time.Second // at least, between two check points
)

// CheckPoints puts check points into the log: entries without a command, at which every replica hashes its
// whole state, so that these are compared at one moment of the log (Chubby §2.11). One comes every few minutes, and soon after a backup has
// begun or replicas were found to differ. It is a goroutine of the master.
type CheckPoints struct {
	epoch *epoch
	due   chan struct{} // full while one is wanted soon
}

func newCheckPoints(e *epoch) *CheckPoints {
	return &CheckPoints{epoch: e, due: make(chan struct{}, 1)}
}

// Soon asks for a check point, and does not wait for it.
func (c *CheckPoints) Soon() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// run makes them until ctx ends. As every entry, one is written while no other is on its way, and none while the mastership is handed over.
func (c *CheckPoints) run(ctx context.Context) {
	for {
		regular := time.NewTimer(checkEvery)
		select {
		case <-ctx.Done():
		case <-c.due:
		//mutant: /* nothing */ //by TestContradictedReplicaStops of ./cell
		case <-regular.C:
		}
		regular.Stop()
		resume, err := c.epoch.proposer.pause(ctx)
		if err != nil {
			return
		}
		_, err = c.epoch.proposer.entries.append(nil)
		resume()
		if err != nil {
			c.epoch.journal.say(slog.LevelDebug, "no check point could be written", slog.String("error", err.Error()))
		}
		pause := time.NewTimer(checkPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}
