package peer

import (
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

// divergedEvery is the time between two log lines on one replica that differs.
const divergedEvery = time.Minute

// Comparison compares what this replica has applied with what the others have,
// by the running hashes that probes report (Chubby §2.11 compares the contents of
// databases every few hours). Replicas of one cell that differ at the same index
// have lost or damaged something, and no later entry mends that. It is for any
// goroutine.
type Comparison struct {
	at     func(index uint64) (sum uint64, ok bool) // of this replica
	clock  session.Clock
	logger *slog.Logger

	mu      sync.Mutex                 // guards what follows
	differs map[string]session.Instant // by replica ID: when that was last logged
}

// NewComparison returns a comparison with what at says that this replica has applied.
func NewComparison(at func(index uint64) (sum uint64, ok bool), clock session.Clock, logger *slog.Logger) *Comparison {
	return &Comparison{at: at, clock: clock, logger: logger, differs: map[string]session.Instant{}}
}

// Heard takes a replica's report.
func (c *Comparison) Heard(id string, index, sum uint64) {
	ours, ok := c.at(index)
	if !ok {
		return // it is ahead, or far behind; one of the two finds out
	}
	now := c.clock()
	c.mu.Lock()
	told, before := c.differs[id]
	due := ours != sum && (!before || now.Sub(told) >= divergedEvery)
	switch {
	case ours == sum:
		delete(c.differs, id)
	case due:
		c.differs[id] = now
	}
	c.mu.Unlock()
	if due {
		c.logger.Error("another replica has applied other entries than this one", "peer", id, "index", index,
			"here", ours, "there", sum, "advice", divergedAdvice)
	}
}

// Count returns how many replicas differ from this one.
func (c *Comparison) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.differs)
}

// divergedAdvice is what to do about replicas that differ. Nobody may remove the
// only copy of what was acknowledged, so it names none.
const divergedAdvice = "one of them has lost entries or is damaged; being the master proves nothing. Remove no data directory. " +
	"Stop the replica that differs from most of the others (chubbyctl cell status); if that cannot be told, stop all of them, and keep every data directory for a report"
