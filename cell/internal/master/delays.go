package master

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// delays times the lock-delays of one epoch (Chubby §2.4). The tree has delayed names and max lengths. Only
// the master knows since when; a new master safely starts each again in full.
//
// A delay goes by ID, not name: when another holder of a shared lock fails, the name gets a new delay, for
// which the old one's time does not count. epoch.mu guards it.
type delays struct {
	ids  map[api.Name]uint64 // namespace.Delay.ID
	ends session.Timetable[api.Name]
}

func newDelays() *delays { return &delays{ids: map[api.Name]uint64{}} }

// start times a delay. It replaces an earlier one, with the later end, and never a later one.
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

// due removes and returns at most maxDue expired delays, the earliest first.
func (d *delays) due(now session.Instant) []raftfsm.EndDelay {
	var over []raftfsm.EndDelay
	for len(over) < maxDue {
		name, end, ok := d.ends.Next()
		if !ok || end > now {
			break
		}
		over = append(over, raftfsm.EndDelay{Name: name, ID: d.ids[name]})
		delete(d.ids, name)
		d.ends.Drop(name)
	}
	return over
}

// maxDue bounds what one tick does of a kind.
const maxDue = 256

// next returns when the next delay expires.
func (d *delays) next() (at session.Instant, ok bool) {
	_, at, ok = d.ends.Next()
	return at, ok
}

// left returns the rest of a delay, or 0.
func (d *delays) left(name api.Name, now session.Instant) time.Duration {
	end, ok := d.ends.At(name)
	if !ok {
		return 0
	}
	return max(end.Sub(now), 0)
}
