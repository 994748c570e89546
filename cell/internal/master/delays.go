package master

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
// nothing about it. epoch.mu guards it.
type delays struct {
	ids  map[api.Name]uint64 // namespace.Delay.ID
	ends session.Timetable[api.Name]
}

// delayOver is a delay that has run its time.
type delayOver struct {
	name api.Name
	id   uint64
}

func newDelays() *delays { return &delays{ids: map[api.Name]uint64{}} }

// start times the delay of that ID on a name. It takes the place of an earlier
// one, whose end still counts if it is later, and never of a later one.
func (d *delays) start(name api.Name, id uint64, length time.Duration, now session.Instant) {
	if id < d.ids[name] {
		return
	}
	end := now.Add(length)
	if was, ok := d.ends.At(name); ok {
		end = max(end, was)
	}
	d.ids[name] = id
	d.ends.Put(name, end)
}

// due returns delays that have ended, the earliest first and at most maxDue of them,
// and times them no more.
func (d *delays) due(now session.Instant) []delayOver {
	var over []delayOver
	for len(over) < maxDue {
		name, end, ok := d.ends.Next()
		if !ok || end > now {
			break
		}
		over = append(over, delayOver{name: name, id: d.ids[name]})
		delete(d.ids, name)
		d.ends.Drop(name)
	}
	return over
}

// maxDue bounds what one tick does of a kind; what is left is for the next.
const maxDue = 256

// next returns when the earliest delay is over.
func (d *delays) next() (at session.Instant, ok bool) {
	_, at, ok = d.ends.Next()
	return at, ok
}

// left returns how long a delay has yet to run, 0 if there is none.
func (d *delays) left(name api.Name, now session.Instant) time.Duration {
	end, ok := d.ends.At(name)
	if !ok {
		return 0
	}
	return max(end.Sub(now), 0)
}
