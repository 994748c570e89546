package session

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// Pauses judges how long a master's process did not run: it was stopped, its machine was suspended, or it got no
// processor time. The clients could not reach the master then either, so their leases are extended by as much.
//
// It is told what the clock reads again and again, by Look, also while the master works or waits for a
// mutex. A gap of more than MaxTick between two looks is a pause. Time in which the master is busy is not a pause: clients could
// reach it, and those that can keep it busy could keep sessions alive.
//
// Of pauses of at most MaxPatience each, it forgives MaxPatience in total; time without pauses restores
// this budget. So even if every look is late, a session that is not extended has ended after twice its lease
// plus MaxPatience. A longer pause is forgiven completely: the machine was suspended, or its
// clock is wrong, and no client can cause that by load.
type Pauses struct {
	last     Instant
	patience time.Duration // how much more of pauses of at most MaxPatience may be forgiven
	forgiven time.Duration // since the last Take
}

// MaxTick is a quarter of the shortest lease. A master looks at its clock more often than that, so what takes
// longer was a pause.
const MaxTick = api.MinLease / 4

// MaxPatience bounds what is forgiven in total of pauses of up to this length each: a client that could
// not reach the master for longer than the longest lease and the grace period after it has given up
// its session.
const MaxPatience = api.MaxLease + api.DefaultGrace

// NewPauses returns the pauses after an instant, of which there were none yet.
func NewPauses(from Instant) *Pauses { return &Pauses{last: from, patience: MaxPatience} }

// Look notes that the process runs when the clock reads now. Instants that go back are taken as a clock that was set back.
func (p *Pauses) Look(now Instant) {
	gap := now.Sub(p.last)
	p.last = now
	switch {
	case gap <= MaxTick:
		p.patience = min(p.patience+max(gap, 0), MaxPatience)
	case gap > MaxPatience:
		p.forgiven += gap
	default:
		some := min(gap, p.patience)
		p.patience -= some
		p.forgiven += some
	}
}

// Take returns by how much leases are to be extended for the pauses that Look has found since the last Take.
func (p *Pauses) Take() time.Duration {
	forgiven := p.forgiven
	p.forgiven = 0
	return forgiven
}
