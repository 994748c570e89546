package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// questions are the calls about one sequencer: the one under way, and the next.
type questions struct {
	now  *question // nil before the first
	next *question // not sent; nil if nobody waits for it
}

// question is one call to the cell.
type question struct {
	waiting int // who waits for it; mu
	cancel  context.CancelFunc
	sent    session.Instant // of the attempt that was answered, or is under way; mu
	epoch   api.Epoch       // that the session had heard of then; mu
	falls   uint64          // of the lock, then; mu
	done    chan struct{}   // closed when err is set
	err     error
}

// find returns nothing if an answer that was kept will do, or else the call to
// wait for. definite says that it is not sent before this, so that its answer
// counts whatever it is; late allows one that is under way, whose answer counts
// if it is kept.
func (k *CachingChecker) find(s sequencer.Sequencer, late bool) (q *question, definite bool, err error) {
	now, epoch, safe := k.client.session.readClock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, false, k.wasClosed(s)
	}
	if safe && k.stands(s, now, epoch) {
		k.stats.Kept++
		return nil, false, nil
	}
	all := k.asking[s]
	if all == nil {
		all = &questions{next: newQuestion()}
		k.asking[s] = all
		k.running.Go(func() { k.ask(s, all) })
	}
	if late && all.now != nil && all.now.waiting > 0 && now.Sub(all.now.sent) < k.maxAge {
		all.now.waiting++
		return all.now, false, nil
	}
	if all.next == nil {
		all.next = newQuestion()
	}
	all.next.waiting++
	return all.next, true, nil
}

func newQuestion() *question { return &question{done: make(chan struct{})} }

// leave ends the call that nobody waits for any more.
func (k *CachingChecker) leave(q *question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.waiting--; q.waiting == 0 && q.cancel != nil {
		q.cancel()
	}
}

// ask makes one call after the other about a sequencer, while somebody waits for
// one.
func (k *CachingChecker) ask(s sequencer.Sequencer, all *questions) {
	text := s.String()
	for {
		ctx, q := k.begin(s, all)
		if q == nil {
			return
		}
		k.finish(s, all, q, k.client.cell.ask(ctx, "check sequencer", s.Path.String(), func(ctx context.Context, t *target) error {
			k.stamp(s, q)
			return k.client.cell.checkAt(ctx, t, text)
		}))
	}
}

// begin takes the next call, nil if nobody waits for one.
func (k *CachingChecker) begin(s sequencer.Sequencer, all *questions) (context.Context, *question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := all.next
	all.next = nil
	if q == nil || q.waiting == 0 {
		delete(k.asking, s)
		return nil, nil
	}
	ctx, cancel := context.WithCancel(k.base)
	q.cancel, all.now = cancel, q
	q.sent = k.client.session.clock()
	k.stats.Asked++
	return ctx, q
}

// stamp notes when an attempt is sent, and what its answer will be compared with.
func (k *CachingChecker) stamp(s sequencer.Sequencer, q *question) {
	now, epoch, _ := k.client.session.readClock()
	k.mu.Lock()
	defer k.mu.Unlock()
	q.sent, q.epoch, q.falls = now, epoch, 0
	if l := k.locks[s.Path]; l != nil {
		q.falls = l.falls
	}
}

// finish hands out the answer to a call.
func (k *CachingChecker) finish(s sequencer.Sequencer, all *questions, q *question, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		err = k.wasClosed(s)
	}
	q.cancel()
	all.now, q.err = nil, err
	switch l := k.locks[s.Path]; {
	case err == nil && k.maxAge > 0:
		k.keep(s, q)
	case errors.Is(err, api.BadSequencer) && l != nil && l.good == s:
		l.fall()
	}
	close(q.done)
}
