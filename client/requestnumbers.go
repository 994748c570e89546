package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// errNoQueuePlace says that a session, or its Cell, has the maximum of requests in queues.
var errNoQueuePlace = errors.New("there is no place for another wait")

// requestNumbers allocates the request numbers of a session. A number is outstanding from allocate until
// finish. The master keeps the answers to outstanding numbers, for retries, and drops all others: an early
// finish loses the answer of a retry, and a missing one keeps it permanently.
type requestNumbers struct {
	polling chan struct{} // capacity 1: full while a request without a queue place tries its lock
	places  chan struct{} // full while as many requests of all sessions of the Cell are in queues as may be

	mu          sync.Mutex // guards what follows; take no mutex under it
	last        uint64
	outstanding []uint64            // ascending; at most api.MaxOutstanding
	waiting     map[uint64]struct{} // the outstanding numbers of requests in queues of locks
	freed       chan struct{}       // closed when a number is finished; nil without a waiter
	vacated     chan struct{}       // closed when a waiting one is finished; nil without a waiter
}

func newRequestNumbers(places chan struct{}) *requestNumbers {
	return &requestNumbers{
		polling: make(chan struct{}, 1),
		places:  places,
		waiting: map[uint64]struct{}{},
	}
}

const (
	// maxOrdinary is how many numbers may be outstanding before allocate waits. It leaves
	// room for maxCleanups and one allocateNow.
	maxOrdinary = api.MaxOutstanding - maxCleanups - 1
	// maxCleanups limits the additional requests that give something back: a Release must not wait for
	// changes, which may take a lease.
	maxCleanups = 32
	// maxSessionWaits limits a session's requests in queues of locks, as a Release or a Close, which end such
	// a wait, need room.
	maxSessionWaits = api.MaxOutstanding * 3 / 4
	// maxCellWaits is the same for all sessions of a Cell: half of a replica's calls over one connection.
	maxCellWaits = 1_000
)

// allocate returns a number once fewer than maxOrdinary are outstanding, or, for classCleanup, maxCleanups
// more. For a wait for a lock (classUnlimited) it fails with errNoQueuePlace at once if maxSessionWaits
// requests of the session, or maxCellWaits of the Cell, are in queues.
func (n *requestNumbers) allocate(ctx context.Context, class callClass) (uint64, error) {
	for {
		number, freed, err := n.tryAllocate(class)
		if number != 0 || err != nil {
			return number, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, contextError(ctx)
		}
	}
}

// tryAllocate is allocate without a wait: number is 0 without room; freed is closed when a retry may succeed.
func (n *requestNumbers) tryAllocate(class callClass) (number uint64, freed <-chan struct{}, err error) {
	waits, limit := class == classUnlimited, maxOrdinary
	if class == classCleanup {
		limit += maxCleanups
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case waits && len(n.waiting) >= maxSessionWaits:
		return 0, nil, errNoQueuePlace
	case len(n.outstanding) >= limit:
		if n.freed == nil {
			n.freed = make(chan struct{})
		}
		return 0, n.freed, nil
	case !waits:
		return n.allocateLocked(), nil, nil
	}
	select {
	case n.places <- struct{}{}:
		number = n.allocateLocked()
		n.waiting[number] = struct{}{}
		return number, nil, nil
	default:
		return 0, nil, errNoQueuePlace
	}
}

func (n *requestNumbers) allocateLocked() uint64 {
	n.last++
	n.outstanding = append(n.outstanding, n.last)
	return n.last
}

// finish ends a number: its answer is known, and will not be requested again.
func (n *requestNumbers) finish(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := slices.BinarySearch(n.outstanding, number); ok {
		n.outstanding = slices.Delete(n.outstanding, i, i+1)
	}
	if _, waited := n.waiting[number]; waited {
		delete(n.waiting, number)
		<-n.places
		if n.vacated != nil {
			close(n.vacated)
			n.vacated = nil
		}
	}
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}

// releasePlaces gives back the queue places of an ended session. The janitor's goroutine calls it, since the
// owner of a lost session may close it much later.
func (n *requestNumbers) releasePlaces() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number := range n.waiting {
		delete(n.waiting, number)
		<-n.places
	}
}

// allocateNow returns a number at once. It is for the janitor, which undoes one request at a time, and must
// not wait for room that only it can make.
func (n *requestNumbers) allocateNow() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allocateLocked()
}

func (n *requestNumbers) wireMutation(number uint64) *chubbypb.Mutation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &chubbypb.Mutation{Number: number, HighestIssued: n.last, Outstanding: slices.Clone(n.outstanding)}
}

func (n *requestNumbers) countWaiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.waiting)
}

// placeVacated returns a channel that is closed when a queue place may be free.
func (n *requestNumbers) placeVacated() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.vacated == nil {
		n.vacated = make(chan struct{})
	}
	return n.vacated
}
