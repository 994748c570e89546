package master

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
)

// Metrics is told what a master does, to be counted. Its methods are called with the
// mutex held, and so do nothing but count.
type Metrics interface {
	Proposed(commands int, err error) // an entry was appended, or with err perhaps not
	SessionBegun()
	SessionEnded(why api.EndReason, unheard int) // unheard are the sessions, besides, whose clients have not returned since the take-over
	LeaseExtended(unheard int)                   // as of SessionEnded
	// LockGranted is told how long a request waited in the queue that was granted its lock; trace is nil if it is not traced.
	LockGranted(name api.Name, wait time.Duration, trace steps.Trace)
	// TurnEnded is told how long a lock was held, by one holder or by readers together; see holdTimes.
	TurnEnded(name api.Name, held time.Duration)
	ChangeWaited(wait time.Duration) // for clients to drop what they had cached
	Invalidated()                    // a client was told to drop a copy
	EventDropped()                   // because too many waited
	MutexHeld(held time.Duration)    // once, of one hold in some; see pausingMutex
	// TakeoverCleared is told how long after the takeover the last client had dropped what an earlier master let it cache.
	TakeoverCleared(took time.Duration)
}

// uncounted is the Metrics of a master that was given none.
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
