package master

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
)

// Metrics counts what a master does. Its methods run with the mutex held, and only count.
type Metrics interface {
	Proposed(commands int, err error) // an entry was appended, or with err perhaps not
	SessionBegun()
	SessionEnded(why api.EndReason, unheard int) // unheard counts other sessions whose clients have not returned since the takeover
	LeaseExtended(unheard int)                   // likewise
	// LockGranted counts a grant after a wait; trace is nil if not traced.
	LockGranted(name api.Name, wait time.Duration, trace steps.Trace)
	// TurnEnded counts how long a lock was held, by one holder or readers together; see holdTimes.
	TurnEnded(name api.Name, held time.Duration)
	ChangeWaited(wait time.Duration) // for clients to drop what they had cached
	Invalidated()                    // a client was told to drop a copy
	EventDropped()                   // because too many waited
	MutexHeld(held time.Duration)    // once for some holds; see pausingMutex
	// TakeoverCleared counts the time until the last client had dropped what an earlier master let it cache.
	TakeoverCleared(took time.Duration)
}

// uncounted is the Metrics of a master without one.
type uncounted struct{}

func (uncounted) Proposed(int, error)                              {}
func (uncounted) SessionBegun()                                    {}
func (uncounted) SessionEnded(api.EndReason, int)                  {}
func (uncounted) LeaseExtended(int)                                {}
func (uncounted) LockGranted(api.Name, time.Duration, steps.Trace) {}
func (uncounted) TurnEnded(api.Name, time.Duration)                {}
func (uncounted) ChangeWaited(time.Duration)                       {}
func (uncounted) Invalidated()                                     {}
func (uncounted) EventDropped()                                    {}
func (uncounted) MutexHeld(time.Duration)                          {}
func (uncounted) TakeoverCleared(time.Duration)                    {}
