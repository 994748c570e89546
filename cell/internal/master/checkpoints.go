package master

import (
	"context"
	"log/slog"
	"time"
)

// Times of check points.
const (
	checkEvery = 3 * time.Minute  // between two, without a request
	checkPause = 10 * time.Second // min time between two
)

// CheckPoints puts check points into the log: empty entries at which every replica hashes its whole state, to
// compare all at one moment of the log (Chubby §2.11). One comes every few minutes, and soon after a backup
// begins or replicas differ.
type CheckPoints struct {
	epoch *epoch
	due   chan struct{} // full while one is wanted soon
}

func newCheckPoints(e *epoch) *CheckPoints {
	return &CheckPoints{epoch: e, due: make(chan struct{}, 1)}
}

// Soon asks for a check point, without waiting.
func (c *CheckPoints) Soon() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// run writes check points until ctx ends, each alone, and never while the mastership is handed over.
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
			c.epoch.reports.journal.say(slog.LevelDebug, "no check point could be written", slog.String("error", err.Error()))
		}
		pause := time.NewTimer(checkPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}
