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

	mu     sync.Mutex              // guards the fields below
	own    Check                   // the newest of this replica
	others map[string]*counterpart // by replica ID
}

// counterpart is what is known of another replica.
type counterpart struct {
	check   Check           // its newest
	differs bool            // it applied other entries
	apart   bool            // it differed at the last common check point
	silent  session.Instant // until then, no log line
}

// NewComparison returns a comparison. ownHash returns this replica's running hash at an index it still knows.
func NewComparison(ownHash func(index uint64) (sum uint64, ok bool), clock session.Clock, logger *slog.Logger) *Comparison {
	return &Comparison{ownHash: ownHash, clock: clock, logger: logger, others: map[string]*counterpart{}}
}

// Compare compares another replica's report with this one. It reports whether it logged a difference: new, or
// last logged a minute ago.
func (c *Comparison) Compare(id string, report Report) (logged bool) {
	ours, ok := c.ownHash(report.Applied) // else the other replica compares: it is ahead, or far behind
	c.mu.Lock()
	o, own := c.others[id], c.own
	if o == nil {
		o = &counterpart{}
		c.others[id] = o
	}
	if ok {
		o.differs = ours != report.History
	}
	o.check = report.Check
	o.compareStates(own)
	differs := ok && o.differs
	due := differs || o.apart && o.check.Index == own.Index
	if due {
		now := c.clock()
		if due = now >= o.silent; due {
			o.silent = now.Add(divergedEvery)
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

// compareStates compares whole states, if both replicas have the same check point.
func (o *counterpart) compareStates(own Check) {
	if o.check.Index > 0 && o.check.Index == own.Index && o.check.Kind == own.Kind {
		o.apart = own.Differs(o.check)
	}
}

// Reached takes this replica's check at a newer check point.
func (c *Comparison) Reached(own Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = own
	for _, o := range c.others {
		o.compareStates(own)
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
	others = map[string]Check{}
	for id, o := range c.others {
		others[id] = o.check
	}
	return c.own, others
}

// Keep forgets all other replicas: they have left the cell.
func (c *Comparison) Keep(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.others, func(id string, _ *counterpart) bool { return !slices.Contains(ids, id) })
}

// Differing returns the replicas that differ from this one, in order.
func (c *Comparison) Differing() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, o := range c.others {
		if o.differs || o.apart {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// divergedAdvice is for replicas that differ. It names none to remove: that could be the only one with all
// acknowledged entries.
const divergedAdvice = "one of them has lost entries or is damaged; being the master proves nothing. Remove no data directory. " +
	"One that a majority of the voting replicas contradicts stops by itself, with a message, at the next check point, and is then to be replaced (chubbyctl cell replace). " +
	"If none has stopped after some minutes, no majority agrees: stop all of them, and keep every data directory for a report"
