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

// errNoPlace says that a session, or those of its Cell, have as many requests in queues
// as they may.
var errNoPlace = errors.New("there is no place for another wait")

// How often a request that has no place tries its lock: at first, and at last.
const (
	firstCrowdPause   = time.Second
	longestCrowdPause = api.DefaultLease
)

// wait waits until the lock is granted: in the lock's queue, where the session has
// a place for another wait. While it has none the lock is tried now and then, one
// of a session's at a time: a lock that is free is not waited for behind others
// that are not, however many.
func (a *acquiring) wait(ctx context.Context) error {
	c := a.handle.client
	queued := mutation{op: "acquire", path: a.handle.path, noTimeout: true, send: a.queue, settle: a.undo}
	timer := time.NewTimer(0) // it is tried at once
	defer timer.Stop()
	for pause := firstCrowdPause; ; {
		vacated := c.numbers.vacant()
		err := c.mutate(ctx, queued)
		if !errors.Is(err, errNoPlace) {
			return err
		}
		select {
		case <-vacated:
		case <-timer.C:
			// Where the lock is this handle's own there is nothing to wait for.
			if err = a.tryInCrowd(ctx); !isTaken(err) || a.handle.holds() {
				return err
			}
			errors.As(err, &a.crowded)
			timer.Reset(pause/2 + rand.N(pause/2))
			pause = min(pause+pause/2, longestCrowdPause)
		case <-c.session.ended.Done():
			return about(c.session.errIfGone(), "acquire", a.handle.path)
		case <-ctx.Done():
			return &api.Error{Code: api.Unavailable, Op: "acquire", Path: a.handle.path, Err: contextError(ctx), Message: "nothing was sent"}
		}
	}
}

// tryInCrowd tries the lock, when no other request of the session does.
func (a *acquiring) tryInCrowd(ctx context.Context) error {
	c := a.handle.client
	select {
	case c.numbers.trying <- struct{}{}:
		defer func() { <-c.numbers.trying }()
	case <-ctx.Done(): // as it will be found again
	}
	return c.mutate(ctx, a.trial("acquire"))
}

// trial is the request of TryAcquire.
func (a *acquiring) trial(op string) mutation {
	return mutation{op: op, path: a.handle.path, settle: a.undo,
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			reply, err := t.data.chubby.TryAcquire(ctx, &chubbypb.TryAcquireRequest{
				Caller: caller, Mutation: m, Handle: a.token, Mode: chubbypb.LockMode(a.mode), Reason: a.options.reason,
			})
			a.granted = reply.GetGranted()
			return err
		}}
}

func isTaken(err error) bool { return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) }

// leftCrowd is what is told to a request that never had a place.
func leftCrowd() string {
	return fmt.Sprintf("gave up; the lock is not held. It was not in the lock's queue, but tried now and then, because %d requests of this session wait in queues, "+
		"or %d of the sessions of its Cell, which is the most; spread them over several sessions (Cell.NewSession), of several Cells (Dial)", maxWaits, mostWaits)
}
