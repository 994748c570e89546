package tables

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Delays times the lock-delays of one epoch (Chubby §2.4). The tree has delayed names and max lengths. Only
// the master knows since when; a new master safely starts each again in full.
//
// A delay goes by ID, not name: when another holder of a shared lock fails, the name gets a new delay, for
// which the old one's time does not count.
type Delays struct {
	IDs  map[api.Name]uint64 // namespace.Delay.ID
	Ends session.Timetable[api.Name]
}

func newDelays() *Delays { return &Delays{IDs: map[api.Name]uint64{}} }

// Start times a delay. It replaces an earlier one, with the later end, and never a later one.
func (d *Delays) Start(name api.Name, id uint64, length time.Duration, now session.Instant) {
	if id < d.IDs[name] {
		return
	}
	end := now.Add(length)
	if was, ok := d.Ends.At(name); ok {
		end = max(end, was)
	}
	d.IDs[name] = id
	d.Ends.Put(name, end)
}

// Due removes and returns at most MaxDue expired delays, the earliest first.
func (d *Delays) Due(now session.Instant) []raftfsm.EndDelay {
	var over []raftfsm.EndDelay
	for len(over) < MaxDue {
		name, end, ok := d.Ends.Next()
		if !ok || end > now {
			break
		}
		over = append(over, raftfsm.EndDelay{Name: name, ID: d.IDs[name]})
		delete(d.IDs, name)
		d.Ends.Drop(name)
	}
	return over
}

// MaxDue bounds what one tick does of a kind.
const MaxDue = 256

// Left returns the rest of a delay, or 0.
func (d *Delays) Left(name api.Name, now session.Instant) time.Duration {
	end, ok := d.Ends.At(name)
	if !ok {
		return 0
	}
	return max(end.Sub(now), 0)
}
