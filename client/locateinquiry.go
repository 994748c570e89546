package client

import (
	"context"
	"errors"
	"sync"
)

// errSilent is the error of a replica that has not answered within DialTimeout.
var errSilent = errors.New("no answer")

// inquiry is the questions for the master that one search has asked. A round does not wait
// long for those who have not answered while the others have; but their questions go on,
// and the next round takes the answers. Else a master that takes longer than the others,
// because it is far away, or busy, would be asked again and again, and never heard.
//
// It belongs to the goroutine of the search.
type inquiry struct {
	finder  *finder
	ctx     context.Context //nolint:containedctx // it is theirs: ended by end
	cancel  context.CancelFunc
	asked   sync.WaitGroup
	answers chan answer
	open    map[string]struct{} // addresses of those whose answers were not taken
}

func (f *finder) inquire(ctx context.Context) *inquiry {
	q := &inquiry{finder: f, answers: make(chan answer), open: map[string]struct{}{}}
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q
}

// ask asks one replica, unless it is being asked.
func (q *inquiry) ask(address string) {
	if _, open := q.open[address]; open {
		return
	}
	q.open[address] = struct{}{}
	q.asked.Go(func() {
		ctx, cancel := context.WithTimeout(q.ctx, q.finder.cfg.DialTimeout)
		defer cancel()
		one := q.finder.locate(ctx, address)
		if one.err != nil && ctx.Err() != nil {
			one.err = errSilent
		}
		select {
		case q.answers <- one:
		case <-q.ctx.Done():
		}
	})
}

// end takes back the questions that are open.
func (q *inquiry) end() {
	q.cancel()
	q.asked.Wait()
}
