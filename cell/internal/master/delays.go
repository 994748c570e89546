package master

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// delays times the lock-delays of one epoch (Chubby §2.4). The tree has the delayed names and their max
// lengths. Only the master knows when a delay began, and a new master starts it again in full, which is safe.
//
// An ID identifies a delay, not its name: when the next holder of a shared lock fails, it makes a new delay
// on the name, and the old delay's time does not count for it. epoch.mu guards it.
type delays struct {
	ids  map[api.Name]uint64 // namespace.Delay.ID
	ends session.Timetable[api.Name]
}

// delayOver is an expired delay.
type delayOver struct {
	name api.Name
	id   uint64
}

func newDelays() *delays { return &delays{ids: map[api.Name]uint64{}} }

// start times the delay of that ID on a name. It replaces an earlier one, but keeps the later end; it ignores
// a delay older than the current one.
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

// due removes and returns expired delays, the earliest first, at most maxDue.
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

// maxDue bounds what one tick does of a kind; the next tick does the rest.
const maxDue = 256

// next returns when the next delay expires.
func (d *delays) next() (at session.Instant, ok bool) {
	_, at, ok = d.ends.Next()
	return at, ok
}

// left returns the rest of a delay, 0 if there is none.
func (d *delays) left(name api.Name, now session.Instant) time.Duration {
	end, ok := d.ends.At(name)
	if !ok {
		return 0
	}
	return max(end.Sub(now), 0)
}
