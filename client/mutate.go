package client

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// mutation is one request that changes replicated state, at most once: every attempt carries the same number.
type mutation struct {
	op, path  string
	noTimeout bool                // as in call
	size      int                 // as in call
	onNumber  func(number uint64) // called with the number before the first attempt, or nil
	send      sender
	// touches are the nodes that the request may change. fetch is the read that is part of the request, or
	// nil. effectOf returns the changes of a successful request; nil stands for effectAny.
	touches  []api.Name
	fetch    *fetch
	effectOf func() changeEffect
	// settle is called by the janitor for an abandoned request. It undoes or prevents the effect, and
	// finishes the number. nil withdraws the request, or completes one that must be.
	settle func(ctx context.Context, number uint64)
	// undone reports whether settle undoes an abandoned request completely. The call then returns that error
	// itself: no answer came, or a refusal. nil is never.
	undone func(err error) bool
	// mustComplete says that the request gives something back: the janitor completes it if abandoned, even
	// unsent.
	mustComplete bool
}

type sender func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error

// mutate sends a mutation until it has an answer, ctx ends, or the session is gone. If ctx ends first, the
// janitor takes over.
func (c *Client) mutate(ctx context.Context, m mutation) error {
	number, err := c.beginMutation(ctx, m)
	if err != nil {
		return m.notDoneError(c, err)
	}
	if m.onNumber != nil {
		m.onNumber(number)
	}
	//mutant: m.touches = nil //by TestCachesAreConsistent of ./cell
	c.cache.beginChange(m.touches, m.fetch)
	attempts := 0
	result, err := c.cell.dispatcher.dispatch(ctx, call{
		op:        m.op,
		path:      m.path,
		session:   c.session,
		noTimeout: m.noTimeout,
		class:     m.classOf(),
		size:      m.size,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			attempts++
			return m.send(ctx, t, caller, c.numbers.wireMutation(number))
		},
	})
	if m.lasts() && (result == outcomeUncertain || attempts > 1 || err == nil && m.effectAfter(attempts, nil) != effectNone) {
		c.session.counters.lastingChanges.Add(1)
	}
	if result != outcomeUncertain {
		c.numbers.finish(number)
		c.cache.endChange(m.touches, m.effectAfter(attempts, err))
		//mutant: if attempts == 0 {
		if result == outcomeNotDone {
			return m.notDoneError(c, err)
		}
		return err
	}
	c.janitor.add(func(ctx context.Context) {
		switch {
		case m.settle != nil:
			m.settle(ctx, number)
		case m.mustComplete:
			_ = c.sendUntilAnswered(ctx, m.op, m.path, number, classCleanup, m.send)
		default:
			_, _ = c.withdraw(ctx, m.op, m.path, number) // either answer is definite
			c.numbers.finish(number)
		}
		c.cache.endChange(m.touches, effectAny)
	})
	if m.undone != nil && m.undone(err) {
		return err
	}
	return m.uncertainError(err)
}

func (m mutation) classOf() callClass {
	switch {
	case m.noTimeout:
		return classUnlimited // it has a queue place
	case m.mustComplete:
		return classCleanup
	}
	return classChange
}

// lasts reports whether the mutation's effect outlives the session. Others, of handles and locks, are settled
// in their own way.
func (m mutation) lasts() bool { return m.settle == nil && !m.mustComplete || len(m.touches) > 0 }

// notDoneError is the error of a mutation abandoned before it was sent, or with all attempts refused for now.
// The janitor gets one that must complete.
func (m mutation) notDoneError(c *Client, err error) error {
	if !m.mustComplete || c.session.ended.Err() != nil {
		return err
	}
	c.janitor.add(func(ctx context.Context) { c.giveBack(ctx, m.op, m.path, m.send) })
	return m.uncertainError(err)
}

// effectAfter returns the changes of a mutation that ended with err after so many attempts. A later attempt's
// error, such as HandleClosed, says nothing of an earlier, unanswered one.
func (m mutation) effectAfter(attempts int, err error) changeEffect {
	switch {
	case err != nil && attempts == 1:
		return effectNone
	case err == nil && m.effectOf != nil:
		return m.effectOf()
	}
	return effectAny
}

func (c *Client) beginMutation(ctx context.Context, m mutation) (number uint64, err error) {
	ended := c.session.ended.Done()
	if err = awaitClosed(ctx, ended, c.janitor.settled()); err == nil {
		number, err = c.numbers.allocate(ctx, ended, m.classOf())
	}
	if err == nil || errors.Is(err, errNoQueuePlace) {
		return number, err
	}
	return 0, c.cell.dispatcher.gaveUpError(ctx, call{op: m.op, path: m.path, session: c.session}, err,
		errors.New("nothing was sent, because earlier requests are without an answer"))
}

func (m mutation) uncertainError(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code == api.SessionExpired {
		return err
	}
	then := "it will not be"
	if m.mustComplete {
		then = "it will be, in the background"
	}
	own := *e
	own.Code = api.Uncertain
	own.Message = "it may or may not have been done, and if not, " + then + ": no answer was heard; " + e.Message
	return &own
}

// withdraw ensures that a request without an effect never has one. The reply says which, with a lock's grant.
// The number stays outstanding.
func (c *Client) withdraw(ctx context.Context, op, path string, number uint64) (reply *chubbypb.CancelReply, err error) {
	err = c.settleCall(ctx, "withdraw "+op, path, number, classCleanup, func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) (err error) {
		reply, err = t.control().chubby.Cancel(ctx, &chubbypb.CancelRequest{Caller: caller, Mutation: m})
		return err
	})
	return reply, err
}

// sendUntilAnswered sends an abandoned mutation until it has an answer, and finishes its number.
func (c *Client) sendUntilAnswered(ctx context.Context, op, path string, number uint64, class callClass, send sender) error {
	defer c.numbers.finish(number)
	return c.settleCall(ctx, op, path, number, class, send)
}

// giveBack sends a request of the janitor's own, which gives something back, until it has an answer.
func (c *Client) giveBack(ctx context.Context, op, path string, send sender) {
	_ = c.sendUntilAnswered(ctx, op, path, c.numbers.allocateNow(), classCleanup, send) // a refusal: it is gone
}

func (c *Client) settleCall(ctx context.Context, op, path string, number uint64, class callClass, send sender) error {
	err := c.read(ctx, class, op, path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		return send(ctx, t, caller, c.numbers.wireMutation(number))
	})
	if err != nil {
		c.cfg.Logger.DebugContext(ctx, "an abandoned request came to an error", "op", op, "path", path, "number", number, "error", err)
	}
	return err
}

func (c *Client) read(ctx context.Context, class callClass, op, path string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error) error {
	_, err := c.cell.dispatcher.dispatch(ctx, call{op: op, path: path, session: c.session, class: class, attempt: attempt})
	return err
}

// janitor settles requests abandoned before their answers, in order, one at a time: each ends up done or
// withdrawn for good, and its number finished. They never exceed the outstanding numbers.
type janitor struct {
	wake chan struct{} // capacity 1: the queue has work

	mu    sync.Mutex // guards what follows; take no mutex under it
	queue []func(ctx context.Context)
	last  chan struct{} // closed when the last request added is settled
}

func newJanitor() *janitor {
	done := make(chan struct{})
	close(done)
	return &janitor{wake: make(chan struct{}, 1), last: done}
}

func (j *janitor) add(settle func(ctx context.Context)) {
	done := make(chan struct{})
	j.mu.Lock()
	j.queue = append(j.queue, func(ctx context.Context) {
		settle(ctx)
		close(done)
	})
	j.last = done
	j.mu.Unlock()
	wakeUp(j.wake)
}

// settled returns a channel that is closed when all requests so far are settled. A new request waits for that, as an
// old one must not take effect after it.
func (j *janitor) settled() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// settleAll settles requests until ctx, the session's, ends: then none could take effect.
func (j *janitor) settleAll(ctx context.Context) {
	for {
		for settle := j.takeNext(); settle != nil && ctx.Err() == nil; settle = j.takeNext() {
			settle(ctx)
		}
		select {
		case <-j.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (j *janitor) takeNext() func(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		return nil
	}
	settle := j.queue[0]
	j.queue = j.queue[1:]
	return settle
}
