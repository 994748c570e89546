package peer

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

// divergedEvery is the time between two log lines about one replica.
const divergedEvery = time.Minute

// Comparison compares this replica with the others by their probe answers: running hashes of what each applied,
// and the whole state at the newest check point. (Chubby §2.11 compares the contents of databases every few
// hours.) If two replicas differ at one index, one has lost or damaged something, and no later entry repairs
// that. It is safe for concurrent use.
type Comparison struct {
	ownHash func(index uint64) (sum uint64, ok bool) // of this replica
	clock   session.Clock
	logger  *slog.Logger

	mu      sync.Mutex                 // guards the fields below
	differs map[string]bool            // by replica ID: those that applied other entries
	own     Check                      // the newest of this replica
	checks  map[string]Check           // by replica ID: the newest of the others
	apart   map[string]bool            // by replica ID: those that differed at the last common check point
	told    map[string]session.Instant // by replica ID: the last log line
}

// NewComparison returns a comparison. ownHash returns this replica's running hash at an index it still knows.
func NewComparison(ownHash func(index uint64) (sum uint64, ok bool), clock session.Clock, logger *slog.Logger) *Comparison {
	return &Comparison{
		ownHash: ownHash, clock: clock, logger: logger,
		differs: map[string]bool{}, checks: map[string]Check{}, apart: map[string]bool{}, told: map[string]session.Instant{},
	}
}

// Compare compares another replica's report with this one. It reports whether it logged a difference: new, or
// last logged a minute ago.
func (c *Comparison) Compare(id string, report Report) (logged bool) {
	ours, ok := c.ownHash(report.Applied) // else the other replica compares: it is ahead, or far behind
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

// compareStates compares whole states, if both replicas have the same check point. c.mu is held.
func (c *Comparison) compareStates(id string) {
	if theirs := c.checks[id]; theirs.Index > 0 && theirs.Index == c.own.Index && theirs.Kind == c.own.Kind {
		setIn(c.apart, id, c.own.Differs(theirs))
	}
}

func setIn(set map[string]bool, id string, in bool) {
	if in {
		set[id] = true
	} else {
		delete(set, id)
	}
}

// Reached takes this replica's check at a newer check point.
func (c *Comparison) Reached(own Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = own
	for id := range c.checks {
		c.compareStates(id)
	}
}

// Own returns the newest check of this replica, for every probe.
func (c *Comparison) Own() Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// Checks returns the newest checks of this replica and of the others.
func (c *Comparison) Checks() (own Check, others map[string]Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own, maps.Clone(c.checks)
}

// Keep forgets all other replicas: they have left the cell.
func (c *Comparison) Keep(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := func(id string) bool { return !slices.Contains(ids, id) }
	maps.DeleteFunc(c.differs, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(c.checks, func(id string, _ Check) bool { return gone(id) })
	maps.DeleteFunc(c.apart, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(c.told, func(id string, _ session.Instant) bool { return gone(id) })
}

// Differing returns the replicas that differ from this one, in order.
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

// divergedAdvice is for replicas that differ. It names none to remove: that could be the only one with all
// acknowledged entries.
const divergedAdvice = "one of them has lost entries or is damaged; being the master proves nothing. Remove no data directory. " +
	"One that a majority of the voting replicas contradicts stops by itself, with a message, at the next check point, and is then to be replaced (chubbyctl cell replace). " +
	"If none has stopped after some minutes, no majority agrees: stop all of them, and keep every data directory for a report"
