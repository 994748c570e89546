package cell

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// delays times the lock-delays of one epoch (Chubby §2.4). The tree says which
// names are delayed and for how long at most; only the master knows since when,
// and a new master starts them again in full, which is the safe direction.
// master.mu guards it.
type delays struct{ end map[api.Name]session.Instant }

func newDelays() *delays { return &delays{end: map[api.Name]session.Instant{}} }

// start begins a delay, or renews one; the later end counts.
func (d *delays) start(name api.Name, length time.Duration, now session.Instant) {
	d.end[name] = max(d.end[name], now.Add(length))
}

// due returns the delays that are over, and times them no more.
func (d *delays) due(now session.Instant) []api.Name {
	var names []api.Name
	for name, end := range d.end {
		if end <= now {
			names = append(names, name)
			delete(d.end, name)
		}
	}
	return names
}

// next returns when the earliest delay is over.
func (d *delays) next() (at session.Instant, ok bool) {
	for _, end := range d.end {
		if !ok || end < at {
			at, ok = end, true
		}
	}
	return at, ok
}

// left returns how long a delay has yet to run, 0 if there is none.
func (d *delays) left(name api.Name, now session.Instant) time.Duration {
	end, ok := d.end[name]
	if !ok {
		return 0
	}
	return max(end.Sub(now), 0)
}
