package client

import (
	"context"
	"errors"
	"sync"
)

// errSilent is the error of a replica without an answer within DialTimeout.
var errSilent = errors.New("no answer")

// inquiry is the set of Locate calls of one search. A round ends soon after most replicas have answered; the
// next round takes the other answers. Otherwise a far or busy master's answer would never count.
//
// It belongs to the goroutine of the search.
type inquiry struct {
	locator *locator
	ctx     context.Context //nolint:containedctx // of the calls: ended by cancelAll
	cancel  context.CancelFunc
	running sync.WaitGroup // of the calls
	answers chan locateAnswer
	pending map[string]struct{} // addresses with questions whose answers were not taken
}

func (l *locator) newInquiry(ctx context.Context) *inquiry {
	q := &inquiry{locator: l, answers: make(chan locateAnswer), pending: map[string]struct{}{}}
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q
}

func (q *inquiry) ask(address string) {
	if _, pending := q.pending[address]; pending {
		return
	}
	q.pending[address] = struct{}{}
	q.running.Go(func() {
		ctx, cancel := context.WithTimeout(q.ctx, q.locator.cfg.DialTimeout)
		defer cancel()
		one := q.locator.askReplica(ctx, address)
		if one.err != nil && ctx.Err() != nil {
			one.err = errSilent
		}
		select {
		case q.answers <- one:
		case <-q.ctx.Done():
		}
	})
}

func (q *inquiry) cancelAll() {
	q.cancel()
	q.running.Wait()
}
