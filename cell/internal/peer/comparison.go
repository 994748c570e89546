package peer

import (
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

// divergedEvery is the time between two log lines on one replica that differs.
const divergedEvery = time.Minute

// Comparison compares what this replica has applied with what the others have applied,
// by the running hashes that probes report (Chubby §2.11 compares the contents of
// databases every few hours). If two replicas of one cell differ at the same index, one
// of them has lost or damaged something, and no later entry repairs that. It is for any
// goroutine.
type Comparison struct {
	ownHash func(index uint64) (sum uint64, ok bool) // of this replica
	clock   session.Clock
	logger  *slog.Logger

	mu      sync.Mutex                 // guards what follows
	differs map[string]session.Instant // by replica ID: when that was last logged
}

// NewComparison returns a comparison. ownHash returns the running hash of this replica
// at an index, if it still knows it.
func NewComparison(ownHash func(index uint64) (sum uint64, ok bool), clock session.Clock, logger *slog.Logger) *Comparison {
	return &Comparison{ownHash: ownHash, clock: clock, logger: logger, differs: map[string]session.Instant{}}
}

// Compare compares a report of another replica with what this replica has applied.
func (c *Comparison) Compare(id string, index, sum uint64) {
	ours, ok := c.ownHash(index)
	if !ok {
		return // it is ahead, or far behind; then the other replica compares
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

// Differing returns how many replicas differ from this one.
func (c *Comparison) Differing() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.differs)
}

// divergedAdvice is what to do about replicas that differ. It names no replica to
// remove: that could be the only one with what was acknowledged.
const divergedAdvice = "one of them has lost entries or is damaged; being the master proves nothing. Remove no data directory. " +
	"Stop the replica that differs from most of the others (chubbyctl cell status); if that cannot be told, stop all of them, and keep every data directory for a report"
