package peer

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

// divergedEvery is the time between two log lines on one replica that differs.
const divergedEvery = time.Minute

// Comparison compares this replica with the others, by what probes report (Chubby §2.11 compares the contents of
// databases every few hours): what each has applied, by running hashes, and its whole state at the newest
// check point. If two replicas of one cell differ at the same index, one
// of them has lost or damaged something, and no later entry repairs that. It is for any
// goroutine.
type Comparison struct {
	ownHash func(index uint64) (sum uint64, ok bool) // of this replica
	clock   session.Clock
	logger  *slog.Logger

	mu      sync.Mutex                 // guards what follows
	differs map[string]bool            // by replica ID: those that have applied other entries
	own     Check                      // the newest of this replica
	checks  map[string]Check           // by replica ID: the newest of the others
	apart   map[string]bool            // by replica ID: those whose state was another one at the last check point that both had
	told    map[string]session.Instant // by replica ID: when a difference was last logged
}

// NewComparison returns a comparison. ownHash returns the running hash of this replica
// at an index, if it still knows it.
func NewComparison(ownHash func(index uint64) (sum uint64, ok bool), clock session.Clock, logger *slog.Logger) *Comparison {
	return &Comparison{
		ownHash: ownHash, clock: clock, logger: logger,
		differs: map[string]bool{}, checks: map[string]Check{}, apart: map[string]bool{}, told: map[string]session.Instant{},
	}
}

// Compare compares a report of another replica with this one. It returns whether a difference was logged: it is new, or a minute has
// passed.
func (c *Comparison) Compare(id string, report Report) (logged bool) {
	ours, ok := c.ownHash(report.Applied) // else it is ahead, or far behind; then the other replica compares
	c.mu.Lock()
	if ok {
		setIn(c.differs, id, ours != report.History)
	}
	c.checks[id] = report.Check
	c.compareStates(id)
	differs, apart, own := ok && c.differs[id], c.apart[id], c.own
	due := differs || apart && report.Check.Index == own.Index
	if due {
		now := c.clock()
		if told, before := c.told[id]; before && now.Sub(told) < divergedEvery {
			due = false
		} else {
			c.told[id] = now
		}
	}
	c.mu.Unlock()
	switch {
	case !due:
	case differs:
		c.logger.Error("another replica has applied other entries than this one", "event", "contradiction", "peer", id, "index", report.Applied,
			"here", ours, "there", report.History, "advice", divergedAdvice)
	default:
		c.logger.Error("another replica has another state than this one after the same entry", "event", "contradiction", "peer", id, "index", own.Index,
			"here", own.Sum, "there", report.Check.Sum, "advice", divergedAdvice)
	}
	return due
}

// compareStates compares the whole states of this replica and another one, if both have the same check point. c.mu is held.
func (c *Comparison) compareStates(id string) {
	if theirs := c.checks[id]; theirs.Index > 0 && theirs.Index == c.own.Index && theirs.Kind == c.own.Kind {
		setIn(c.apart, id, c.own.Differs(theirs))
	}
}

// setIn puts an ID into a set, or takes it out.
func setIn(set map[string]bool, id string, in bool) {
	if in {
		set[id] = true
	} else {
		delete(set, id)
	}
}

// Reached takes the check of this replica's own state at a newer check point.
func (c *Comparison) Reached(own Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = own
	for id := range c.checks {
		c.compareStates(id)
	}
}

// Own returns the newest check of this replica. Every probe has it.
func (c *Comparison) Own() Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// Checks returns the newest check of this replica, and those of the others.
func (c *Comparison) Checks() (own Check, others map[string]Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own, maps.Clone(c.checks)
}

// Keep forgets all replicas but these: the others have left the cell.
func (c *Comparison) Keep(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := func(id string) bool { return !slices.Contains(ids, id) }
	maps.DeleteFunc(c.differs, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(c.checks, func(id string, _ Check) bool { return gone(id) })
	maps.DeleteFunc(c.apart, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(c.told, func(id string, _ session.Instant) bool { return gone(id) })
}

// Differing returns which replicas differ from this one, in order.
func (c *Comparison) Differing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, set := range []map[string]bool{c.differs, c.apart} {
			for id := range set {
				if !yield(id) {
					return
				}
			}
		}
	}))
}

// divergedAdvice is what to do about replicas that differ. It names no replica to
// remove: that could be the only one with what was acknowledged.
const divergedAdvice = "one of them has lost entries or is damaged; being the master proves nothing. Remove no data directory. " +
	"One that a majority of the voting replicas contradicts stops by itself, with a message, at the next check point, and is then to be replaced (chubbyctl cell replace). " +
	"If none has stopped after some minutes, no majority agrees: stop all of them, and keep every data directory for a report"
