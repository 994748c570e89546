package client

import (
	"context"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// numbers gives out the request numbers of a session. A number is outstanding
// from begin until its answer is known for good: the master keeps the answers
// to outstanding numbers, for retries, and drops those to all others. So a
// number must not leave too early, or a retry would find its answer gone; and
// one that never left would keep an answer for ever.
type numbers struct {
	trying chan struct{} // capacity 1: held while a request without a place tries its lock
	places *places       // for waits, of all sessions of the Cell

	mu      sync.Mutex // guards what follows
	last    uint64
	open    []uint64            // outstanding, ascending; at most api.MaxOutstanding
	waits   map[uint64]struct{} // those of open that wait for a lock, for as long as that takes
	freed   chan struct{}       // closed and replaced when a number is finished
	vacated chan struct{}       // closed and replaced when one of waits is
}

func newNumbers(p *places) *numbers {
	return &numbers{
		trying: make(chan struct{}, 1), places: p, waits: map[uint64]struct{}{}, freed: make(chan struct{}), vacated: make(chan struct{}),
	}
}

const (
	// maxOpen leaves room below the limit for maxGives, and one number to reserve.
	maxOpen = api.MaxOutstanding - maxGives - 1
	// maxGives is how many of those that give something back are outstanding beside
	// maxOpen others: changes may take as long as a lease, while they wait for caches, and
	// nobody is to wait so long for a lock whose owner has let go.
	maxGives = 32
	// maxWaits is how many of a session's requests for locks are in queues at a
	// time. What would end a wait, a Release or a Close, must find room beside them.
	maxWaits = api.MaxOutstanding * 3 / 4
	// mostWaits is how many of those of all sessions of a Cell are: half of the calls
	// that a replica takes over one connection. What ends a wait must find room beside
	// them.
	mostWaits = 1_000
)

// places counts the requests for locks that are in queues, of all sessions of a Cell.
type places struct {
	most  int
	mu    sync.Mutex // guards taken
	taken int
}

// take takes a place, if there is one.
func (p *places) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most {
		return false
	}
	p.taken++
	return true
}

func (p *places) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken -= n
}

// begin gives out a number, as soon as fewer than maxOpen are outstanding, or, for one that
// gives something back, maxGives more. For one that waits for a lock (anyRoom) it is errNoPlace, at once, if maxWaits do already, or mostWaits
// of the Cell.
func (n *numbers) begin(ctx context.Context, in room) (uint64, error) {
	waits, most := in == anyRoom, maxOpen
	if in == giveRoom {
		most += maxGives
	}
	for {
		n.mu.Lock()
		if waits && len(n.waits) >= maxWaits {
			n.mu.Unlock()
			return 0, errNoPlace
		}
		if len(n.open) < most {
			if waits && !n.places.take() {
				n.mu.Unlock()
				return 0, errNoPlace
			}
			number := n.add()
			if waits {
				n.waits[number] = struct{}{}
			}
			n.mu.Unlock()
			return number, nil
		}
		freed := n.freed
		n.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, contextError(ctx)
		}
	}
}

// add gives out the next number; mu is held.
func (n *numbers) add() uint64 {
	n.last++
	n.open = append(n.open, n.last)
	return n.last
}

// finish says that the answer to a number is known, and not wanted again.
func (n *numbers) finish(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := slices.BinarySearch(n.open, number); ok {
		n.open = slices.Delete(n.open, i, i+1)
	}
	if _, waited := n.waits[number]; waited {
		delete(n.waits, number)
		n.places.give(1)
		close(n.vacated)
		n.vacated = make(chan struct{})
	}
	close(n.freed)
	n.freed = make(chan struct{})
}

// abandon gives back the places of a session that has ended, because its requests are
// not settled any more. The goroutine that would settle them calls it, since the owner
// may close a lost session much later.
func (n *numbers) abandon() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places.give(len(n.waits))
	clear(n.waits)
}

// reserve gives out a number at once, to the janitor, who undoes one request at
// a time: what undoes must not wait for room that only undoing makes.
func (n *numbers) reserve() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.add()
}

// mutation is what stands in a request of that number when it is sent now.
func (n *numbers) mutation(number uint64) *chubbypb.Mutation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &chubbypb.Mutation{Number: number, HighestIssued: n.last, Outstanding: slices.Clone(n.open)}
}

// vacant returns a channel that is closed when there may be a place for another
// wait.
func (n *numbers) vacant() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.vacated
}
