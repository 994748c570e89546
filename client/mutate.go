package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// mutation is one request that changes replicated state. It happens at most
// once, however often it is sent: every attempt carries the same number.
type mutation struct {
	op, path  string
	noTimeout bool                // as in call
	size      int                 // as in call
	onNumber  func(number uint64) // told the number before the first attempt; may be nil
	send      sender
	// touches are the nodes that it may change; part is a read that it is as well,
	// or nil. did says what it has done, once it is done; nil is changed.
	touches  []api.Name
	fetch    *fetch
	effectOf func() changeEffect
	// settle is called by the janitor if the caller left before the answer. It
	// sees to it that the request was done, and undone, or will never be done,
	// and finishes the number. nil withdraws it.
	settle func(ctx context.Context, number uint64)
	// firm says that it gives up something of the caller's own, and is done by the
	// janitor also if the caller left before anybody took it.
	mustComplete bool
}

// sender sends a mutation once.
type sender func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error

// mutate sends a mutation until it has an answer, ctx ends, or the session is
// over. In the second case the janitor takes over.
func (c *Client) mutate(ctx context.Context, m mutation) error {
	number, err := c.begin(ctx, m)
	if err != nil {
		return c.undone(m, err)
	}
	if m.onNumber != nil {
		m.onNumber(number)
	}
	c.cache.beginChange(m.touches, m.fetch)
	attempts := 0
	came, err := c.cell.dispatcher.dispatch(ctx, call{op: m.op, path: m.path, session: c.session, noTimeout: m.noTimeout, class: m.class(), size: m.size,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			attempts++
			return m.send(ctx, t, caller, c.numbers.wireMutation(number))
		}})
	if came != outcomeUncertain {
		c.numbers.finish(number)
		c.closeIdleHandles(c.cache.endChange(m.touches, m.effect(attempts, err)))
		if came == outcomeNotDone {
			return c.undone(m, err)
		}
		return err
	}
	settle := m.settle
	if settle == nil {
		settle = func(ctx context.Context, number uint64) {
			defer c.numbers.finish(number)
			_, _ = c.withdraw(ctx, m.op, m.path, number) // either answer is definite
		}
	}
	c.janitor.leave(func(ctx context.Context) {
		settle(ctx, number)
		c.closeIdleHandles(c.cache.endChange(m.touches, effectAny))
	})
	return m.uncertain(err)
}

// room is what it shares with others of its kind.
func (m mutation) class() callClass {
	switch {
	case m.noTimeout:
		return classUnlimited // it has a place
	case m.mustComplete:
		return classCleanup
	}
	return classChange
}

// undone is the error of a mutation whose caller left before it was sent, or when
// every attempt had been refused for the time being. One that is firm goes to the
// janitor.
func (c *Client) undone(m mutation, err error) error {
	if !m.mustComplete || c.session.ended.Err() != nil {
		return err
	}
	c.janitor.leave(func(ctx context.Context) { m.settle(ctx, c.numbers.allocateNow()) })
	return m.uncertain(err)
}

// effect returns what a mutation that came to this after so many attempts has
// done. What refuses a later attempt, as a handle that was closed meanwhile, says
// nothing of the one before, whose answer was lost.
func (m mutation) effect(attempts int, err error) changeEffect {
	switch {
	case err != nil && attempts == 1:
		return effectNone
	case err == nil && m.effectOf != nil:
		return m.effectOf()
	}
	return effectAny
}

// begin waits until the mutation may be numbered.
func (c *Client) begin(ctx context.Context, m mutation) (uint64, error) {
	ctx, cancel := c.session.withSession(ctx)
	defer cancel()
	err := c.janitor.settled(ctx)
	if err == nil {
		var number uint64
		if number, err = c.numbers.allocate(ctx, m.class()); err == nil {
			return number, nil
		}
		if errors.Is(err, errNoQueuePlace) {
			return 0, err
		}
	}
	return 0, c.cell.dispatcher.gaveUpError(ctx, call{op: m.op, path: m.path, session: c.session}, err,
		errors.New("nothing was sent, because earlier requests are without an answer"))
}

// uncertain is the error of a mutation that was left without an answer.
func (m mutation) uncertain(err error) error {
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

// withdraw makes sure that a request is never done, if it has not been. The
// reply says which, and carries the grant of a lock. Its number stays
// outstanding.
func (c *Client) withdraw(ctx context.Context, op, path string, number uint64) (*chubbypb.CancelReply, error) {
	var reply *chubbypb.CancelReply
	_, err := c.cell.dispatcher.dispatch(ctx, call{op: "withdraw " + op, path: path, session: c.session, class: classCleanup,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) (err error) {
			reply, err = t.control().chubby.Cancel(ctx, &chubbypb.CancelRequest{Caller: caller, Mutation: c.numbers.wireMutation(number)})
			return err
		}})
	if err != nil {
		c.logSettled(ctx, err, op, path, number)
	}
	return reply, err
}

// insist sends a mutation that was left until it has an answer, and finishes
// its number.
func (c *Client) insist(ctx context.Context, op, path string, number uint64, in callClass, send sender) error {
	defer c.numbers.finish(number)
	_, err := c.cell.dispatcher.dispatch(ctx, call{op: op, path: path, session: c.session, class: in,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			return send(ctx, t, caller, c.numbers.wireMutation(number))
		}})
	if err != nil {
		c.logSettled(ctx, err, op, path, number)
	}
	return err
}

// logSettled notes an abandoned request that came to an error: the cell had
// refused it, or the session is over, and everything with it.
func (c *Client) logSettled(ctx context.Context, err error, op, path string, number uint64) {
	c.cfg.Logger.DebugContext(ctx, "an abandoned request came to an error", "op", op, "path", path, "number", number, "error", err)
}

// read makes a call that changes nothing.
func (c *Client) read(ctx context.Context, op, path string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error) error {
	return c.readIn(ctx, classRead, op, path, attempt)
}

func (c *Client) readIn(ctx context.Context, in callClass, op, path string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error) error {
	_, err := c.cell.dispatcher.dispatch(ctx, call{op: op, path: path, session: c.session, class: in, attempt: attempt})
	return err
}
