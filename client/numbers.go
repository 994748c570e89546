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
	mu    sync.Mutex // guards what follows
	last  uint64
	open  []uint64      // outstanding, ascending; at most api.MaxOutstanding
	freed chan struct{} // closed and replaced when a number is finished
}

func newNumbers() *numbers { return &numbers{freed: make(chan struct{})} }

// mostOpen leaves one number below the limit to reserve.
const mostOpen = api.MaxOutstanding - 1

// begin gives out a number, as soon as fewer than mostOpen are outstanding.
func (n *numbers) begin(ctx context.Context) (uint64, error) {
	for {
		n.mu.Lock()
		if len(n.open) < mostOpen {
			number := n.add()
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
	close(n.freed)
	n.freed = make(chan struct{})
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
	return &chubbypb.Mutation{Number: number, Upto: n.last, Outstanding: slices.Clone(n.open)}
}
