package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// errNoQueuePlace says that a session, or its Cell, has the maximum of requests in queues.
var errNoQueuePlace = errors.New("there is no place for another wait")

const (
	minPollPause = time.Second
	maxPollPause = api.DefaultLease
)

// awaitGrant waits until the lock is granted, in its queue if there is a place. Otherwise it tries the lock
// at intervals, one request of a session at a time, and so finds a free lock among any number.
func (a *acquireCall) awaitGrant(ctx context.Context) error {
	c := a.handle.client
	queued := mutation{op: "acquire", path: a.handle.path, noTimeout: true, send: a.sendAcquire, settle: a.settleAcquire}
	if err := c.mutate(ctx, queued); !errors.Is(err, errNoQueuePlace) {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := minPollPause; ; {
		vacated := c.numbers.placeVacated()
		err := c.mutate(ctx, queued)
		if !errors.Is(err, errNoQueuePlace) {
			return err
		}
		select {
		case <-vacated:
		case <-timer.C:
			// If this handle itself holds the lock, waiting is useless.
			if err = a.tryWhilePolling(ctx); !isLockTaken(err) || holdsLock(a.handle) {
				return err
			}
			errors.As(err, &a.lastTry)
			timer.Reset(pause/2 + rand.N(pause/2))
			pause = min(pause+pause/2, maxPollPause)
		case <-c.session.ended.Done():
			return withOperation(c.session.errIfGone(), "acquire", a.handle.path)
		case <-ctx.Done():
			return &api.Error{Code: api.Unavailable, Op: "acquire", Path: a.handle.path, Err: contextError(ctx), Message: "nothing was sent"}
		}
	}
}

func (a *acquireCall) tryWhilePolling(ctx context.Context) error {
	c := a.handle.client
	select {
	case c.numbers.polling <- struct{}{}:
		defer func() { <-c.numbers.polling }()
	case <-ctx.Done(): // mutate reports it
	}
	return c.mutate(ctx, a.tryMutation("acquire"))
}

func (a *acquireCall) tryMutation(op string) mutation {
	return mutation{
		op: op, path: a.handle.path, settle: a.settleAcquire,
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			reply, err := t.data.chubby.TryAcquire(ctx, &chubbypb.TryAcquireRequest{
				Caller: caller, Mutation: m, Handle: a.token, Mode: chubbypb.LockMode(a.mode), Reason: a.options.reason, Owner: a.options.owner, Quiet: a.options.quiet,
			})
			a.granted = reply.GetGranted()
			return err
		},
	}
}

func isLockTaken(err error) bool {
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed)
}

func leftPollingText() string {
	return fmt.Sprintf("gave up; the lock is not held. It was not in the lock's queue, but tried now and then, because %d requests of this session wait in queues, "+
		"or %d of the sessions of its Cell, which is the most; spread them over several sessions (Cell.NewSession), of several Cells (Dial)", maxSessionWaits, maxCellWaits)
}
