package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
)

// callClass is a class of calls, of which all sessions of a Cell together have a limited
// number in flight. A replica takes 2,000 calls over one connection, and gRPC lets
// further ones wait. Such a wait would look like a master that does not answer: so calls
// wait here, before CallTimeout begins, and in classes, so that calls that give something
// back do not wait for calls that take something.
type callClass uint8

const (
	// classUnlimited is for waits for locks, which queuePlaces limits, and for calls of
	// which each session makes one at a time.
	classUnlimited callClass = 0
	classRead      callClass = 1
	classChange    callClass = 2
	// classCleanup is for calls that give something back. They go over the control
	// connection.
	classCleanup callClass = 3
	// classAudit is for the calls of audits. They go over the control connection, because
	// the lease may not be extended before an audit has ended.
	classAudit callClass = 4
)

// How many calls of a class are in flight.
const (
	maxReads        = 200                // a replica has room for as many replies with the largest files
	maxChanges      = api.MaxOutstanding // more than one session can have
	maxCleanupCalls = 128                // few compared with the KeepAlives on the same connection
	maxAuditCalls   = 64                 // as above
)

// At most maxLargeChanges changes of more than largeRequest bytes are in flight: a
// replica closes a connection over which very much is sent at once, and would do so again
// when all of that is sent again.
const (
	largeRequest    = 16 << 10
	maxLargeChanges = 128
)

// callLimits has one channel for each class, with one element for each call in flight.
type callLimits struct{ reads, changes, large, cleanups, audits chan struct{} }

func newCallLimits() callLimits {
	return callLimits{
		reads:    make(chan struct{}, maxReads),
		changes:  make(chan struct{}, maxChanges),
		large:    make(chan struct{}, maxLargeChanges),
		cleanups: make(chan struct{}, maxCleanupCalls),
		audits:   make(chan struct{}, maxAuditCalls),
	}
}

// slotsFor returns the channels in which a call needs a slot, in the order of taking. A
// large change waits among the large ones first, and takes no slot of small ones
// meanwhile.
func (r callLimits) slotsFor(k call) []chan struct{} {
	switch {
	case k.class == classRead:
		return []chan struct{}{r.reads}
	case k.class == classCleanup:
		return []chan struct{}{r.cleanups}
	case k.class == classAudit:
		return []chan struct{}{r.audits}
	case k.class == classChange && k.size > largeRequest:
		return []chan struct{}{r.large, r.changes}
	case k.class == classChange:
		return []chan struct{}{r.changes}
	}
	return nil
}

// takeSlots takes a slot in each channel, and reports whether it had to wait. leave gives
// the slots back; it is to be called after an error too.
func takeSlots(ctx context.Context, slots []chan struct{}) (leave func(), waited bool, err error) {
	taken := 0
	leave = func() {
		for _, slot := range slots[:taken] {
			<-slot
		}
	}
	for _, slot := range slots {
		select {
		case slot <- struct{}{}:
		default:
			waited = true
			select {
			case slot <- struct{}{}:
			case <-ctx.Done():
				return leave, waited, contextError(ctx)
			}
		}
		taken++
	}
	return leave, waited, nil
}
