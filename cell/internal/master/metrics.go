package master

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// Metrics is told what a master does, to be counted. Its methods are called with the
// mutex held, and so do nothing but count.
type Metrics interface {
	Proposed(commands int, err error) // an entry was appended, or with err perhaps not
	SessionBegun()
	SessionEnded(why api.EndReason)
	LeaseExtended()
	LockGranted(wait time.Duration)  // to a request that waited in the queue
	ChangeWaited(wait time.Duration) // for clients to drop what they had cached
	Invalidated()                    // a client was told to drop a copy
	EventDropped()                   // because too many waited
	MutexHeld(held time.Duration)    // once; see pausingMutex
}

// uncounted is the Metrics of a master that was given none.
type uncounted struct{}

func (uncounted) Proposed(int, error)        {}
func (uncounted) SessionBegun()              {}
func (uncounted) SessionEnded(api.EndReason) {}
func (uncounted) LeaseExtended()             {}
func (uncounted) LockGranted(time.Duration)  {}
func (uncounted) ChangeWaited(time.Duration) {}
func (uncounted) Invalidated()               {}
func (uncounted) EventDropped()              {}
func (uncounted) MutexHeld(time.Duration)    {}
