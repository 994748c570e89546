package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
)

// callClass is a class of calls. A limit applies to the pending calls of a class, of all sessions of a Cell.
// A replica takes 2,000 calls over one connection, and gRPC holds back further ones, which would look like a
// silent master. So calls wait here, before CallTimeout begins, and calls that give something back wait
// separately.
type callClass uint8

const (
	// classUnlimited is for waits for locks, which requestNumbers limits, and for calls that each session makes
	// one at a time.
	classUnlimited callClass = 0
	classRead      callClass = 1
	classChange    callClass = 2
	// classCleanup is for calls that give something back, over the control connection.
	classCleanup callClass = 3
	// classAudit is for audits, over the control connection, as the lease may not be extended before an
	// audit's end.
	classAudit callClass = 4
	// classRenewal is for renewals of cache leases, over the control connection, as a session that
	// only uses its cache needs no other.
	classRenewal callClass = 5

	classLarge callClass = 6 // of changes of more than largeRequest bytes, which are of classChange too
)

const (
	maxReads        = 200                // a replica has room for as many of the largest replies
	maxChanges      = api.MaxOutstanding // more than one session can have
	maxCleanupCalls = 128                // few beside the KeepAlives on the same connection
	maxAuditCalls   = 64                 // as above
	maxRenewals     = 64                 // as above; each takes a round trip
)

// At most maxLargeChanges changes of more than largeRequest bytes are pending: with more, a replica closes
// the connection, again at each retry.
const (
	largeRequest    = 16 << 10
	maxLargeChanges = 128
)

// callLimits has a channel for each limited class of calls, with room for those that may be pending.
type callLimits [classLarge + 1]chan struct{}

func newCallLimits() callLimits {
	return callLimits{
		classRead:    make(chan struct{}, maxReads),
		classChange:  make(chan struct{}, maxChanges),
		classLarge:   make(chan struct{}, maxLargeChanges),
		classCleanup: make(chan struct{}, maxCleanupCalls),
		classAudit:   make(chan struct{}, maxAuditCalls),
		classRenewal: make(chan struct{}, maxRenewals),
	}
}

// slots are the channels in which a call needs a slot, in the order of taking; nil ones do not count.
type slots [2]chan struct{}

// slotsFor returns the slots for a call. A large change waits among large ones first, without a small slot.
func (r callLimits) slotsFor(k call) slots {
	if k.class == classChange && k.size > largeRequest {
		return slots{r[classLarge], r[classChange]}
	}
	//mutant: if k.class == classCleanup { return slots{} }; return slots{r[k.class]}
	return slots{r[k.class]}
}

func (s slots) takeNow() bool {
	for i, slot := range s {
		if slot == nil {
			continue
		}
		select {
		case slot <- struct{}{}:
		default:
			giveBack(s[:i])
			return false
		}
	}
	return true
}

// take takes a slot in each channel, and reports whether it had to wait. After an error it has no slots.
func (s slots) take(ctx context.Context) (waited bool, err error) {
	if s.takeNow() {
		return false, nil
	}
	for i, slot := range s {
		if slot == nil {
			continue
		}
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			giveBack(s[:i])
			return true, contextError(ctx)
		}
	}
	return true, nil
}

func (s slots) leave() { giveBack(s[:]) }

func giveBack(taken []chan struct{}) {
	for _, slot := range taken {
		if slot != nil {
			<-slot
		}
	}
}
