package cell

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// delays times the lock-delays of one epoch (Chubby §2.4). The tree says which
// names are delayed and for how long at most; only the master knows since when,
// and a new master starts them again in full, which is the safe direction.
//
// A delay is known by its ID, not by its name: the next holder of a shared lock
// that fails makes a new delay on the same name, and the time of the old one says
// nothing about it. master.mu guards it.
type delays struct{ timed map[api.Name]timedDelay }

// timedDelay is a delay and when it is over.
type timedDelay struct {
	id  uint64 // namespace.Delay.ID
	end session.Instant
}

// delayOver is a delay that has run its time.
type delayOver struct {
	name api.Name
	id   uint64
}

func newDelays() *delays { return &delays{timed: map[api.Name]timedDelay{}} }

// start times the delay of that ID on a name. It takes the place of an earlier
// one, whose end still counts if it is later, and never of a later one.
func (d *delays) start(name api.Name, id uint64, length time.Duration, now session.Instant) {
	if was := d.timed[name]; id >= was.id {
		d.timed[name] = timedDelay{id: id, end: max(was.end, now.Add(length))}
	}
}

// due returns the delays that are over, and times them no more.
func (d *delays) due(now session.Instant) []delayOver {
	var over []delayOver
	for name, t := range d.timed {
		if t.end <= now {
			over = append(over, delayOver{name: name, id: t.id})
			delete(d.timed, name)
		}
	}
	return over
}

// next returns when the earliest delay is over.
func (d *delays) next() (at session.Instant, ok bool) {
	for _, t := range d.timed {
		if !ok || t.end < at {
			at, ok = t.end, true
		}
	}
	return at, ok
}

// left returns how long a delay has yet to run, 0 if there is none.
func (d *delays) left(name api.Name, now session.Instant) time.Duration {
	t, ok := d.timed[name]
	if !ok {
		return 0
	}
	return max(t.end.Sub(now), 0)
}
