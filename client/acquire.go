package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

type acquireCall struct {
	handle     *Handle
	token      []byte // of the handle, the same in every attempt
	recallAlls uint64 // of the handle, when the call began
	mode       api.LockMode
	options    lockOptions
	ticket     []byte           // for the place in the queue
	queued     *chubbypb.Queued // the newest position, or nil
	since      session.Instant  // when the first came
	lastTry    *api.Error       // of the last try without a queue place, or nil
	granted    *chubbypb.Granted
}

func (h *Handle) newAcquireCall(op string, mode api.LockMode, options []LockOption) (*acquireCall, error) {
	a := &acquireCall{handle: h, mode: mode, options: lockOptionsOf(options)}
	if fault := a.options.fault(mode); fault != "" {
		return nil, &api.Error{Code: api.InvalidArgument, Op: op, Path: h.path, Message: fault}
	}
	return a, nil
}

// Acquire waits in the lock's queue and returns the lock. If ctx ends first, the error is DeadlineExceeded or
// Cancelled and names the last known holders. The client then withdraws the request in the background, or
// releases a lock granted meanwhile. Locks are not recursive: a second Acquire through a handle that holds
// the lock fails with LockHeld. (Requests of other goroutines from before the grant queue behind each other,
// which microseconds decide: goroutines that exclude each other need a handle each, as with Client.Acquire.)
//
// At most 192 requests of a session, and 1,000 of all sessions of a Cell, are in queues at a time. Others try
// their locks every few seconds until a place is free. They get a free lock, but have no position, and
// OnQueued is not called.
func (h *Handle) Acquire(ctx context.Context, mode api.LockMode, options ...LockOption) (*Lock, error) {
	a, err := h.newAcquireCall("acquire", mode, options)
	if err != nil {
		return nil, err
	}
	cfg := &h.client.cell.cfg
	began := cfg.Meter.start(cfg.Clock)
	l, err := a.execute(ctx, "acquire", a.awaitGrant)
	if err == nil {
		cfg.Meter.acquired(mode, cfg.Clock, began)
	}
	return l, err
}

func (a *acquireCall) execute(ctx context.Context, op string, send func(ctx context.Context) error) (*Lock, error) {
	h := a.handle
	if l := h.lock.take(ctx, a); l != nil {
		l.markHeld()
		return l, nil
	}
	within, leave, err := h.beginCall(ctx, op)
	if err != nil {
		return nil, err
	}
	defer leave()
	h.mu.Lock()
	h.lock.requested, a.token, a.recallAlls = true, h.currentTokenLocked(), h.lock.recallAlls
	h.mu.Unlock()
	if err := send(within); err != nil {
		return nil, h.poisonedError(op, nameHolders(a.leftError(ctx, err)))
	}
	l, err := a.acceptGrant(within)
	if err == nil {
		l.markHeld()
	}
	return l, h.poisonedError(op, err)
}

// TryAcquire takes the lock if it is free. Otherwise it fails with LockHeld and the holders, or with
// LockDelayed and the remaining time. It waits at most a second for the return of a kept, unused lock
// (OpenOptions.CacheLock). If ctx ends before an answer, the lock is not held, as with Acquire.
//
// A holder that asked for EventConflictingLock hears of it, and may let go for the next try (Chubby §2.5). A
// single try should be Quiet.
func (h *Handle) TryAcquire(ctx context.Context, mode api.LockMode, options ...LockOption) (*Lock, error) {
	a, err := h.newAcquireCall("try to acquire", mode, options)
	if err != nil {
		return nil, err
	}
	return a.execute(ctx, "try to acquire", func(ctx context.Context) error { return h.client.mutate(ctx, a.tryMutation("try to acquire")) })
}

// sendAcquire sends Acquire and listens until the grant. An earlier attempt's ticket restores its place in
// the queue, also at another master.
func (a *acquireCall) sendAcquire(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The first answer comes at once, unless the replica hangs.
	first := time.AfterFunc(a.handle.client.cfg.CallTimeout, cancel)
	defer first.Stop()
	watch := a.handle.client.cell.dispatcher.watchAnswer(t)
	defer watch.endWatch()
	q := a.options.acquireRequest()
	q.Caller, q.Mutation, q.Handle, q.Mode, q.Ticket, q.WaitedNs = caller, m, a.token, chubbypb.LockMode(a.mode), a.ticket, a.waitedNs()
	stream, err := t.data.chubby.Acquire(ctx, q)
	if err != nil {
		return err
	}
	for {
		reply, err := stream.Recv()
		first.Stop()
		watch.endWatch()
		if errors.Is(err, io.EOF) {
			return api.Errorf(api.Uncertain, "the queue ended without an answer")
		}
		if err != nil {
			return err
		}
		if a.granted = reply.GetGranted(); a.granted != nil {
			// The stream ends with the grant. An ended stream is not cancelled below, which would cost both
			// sides a frame.
			first.Reset(streamEndTime)
			_, _ = stream.Recv()
			return nil
		}
		if q := reply.GetQueued(); q != nil {
			if a.queued == nil {
				a.since = a.handle.client.cfg.Clock()
			}
			a.queued, a.ticket = q, q.GetTicket()
			if a.options.onQueued != nil {
				a.options.onQueued(Queued{
					Place: int(q.GetPlace()), Waiting: int(q.GetWaiting()), Holders: chubbypb.Holders(q.GetHolders()), MoreHolders: int(q.GetMoreHolders()),
					Delayed: time.Duration(q.GetDelayedNs()), Estimate: time.Duration(q.GetEstimateNs()),
				})
			}
		}
	}
}

// waitedNs returns the nanoseconds that the request has waited in the queue, for a new master.
func (a *acquireCall) waitedNs() int64 {
	if a.queued == nil {
		return 0
	}
	return int64(a.handle.client.cfg.Clock().Sub(a.since))
}

const streamEndTime = 50 * time.Millisecond

// acceptGrant makes a lock of the grant. It waits while the session is in jeopardy, and so returns only
// reliable locks.
func (a *acquireCall) acceptGrant(ctx context.Context) (*Lock, error) {
	h := a.handle
	seq, err := sequencer.Parse(cmp.Or(a.granted.GetProvedSequencer(), a.granted.GetSequencer()))
	if err != nil {
		a.releaseInBackground()
		return nil, &api.Error{Code: api.Corrupt, Op: "acquire", Path: h.path, Message: "the cell granted the lock with a sequencer that cannot be read", Err: err}
	}
	l := newLock(h, lockTerms{mode: a.mode, reason: a.options.reason, ownsHandle: a.options.ownsHandle}, seq)
	if err = h.client.session.trackLock(ctx, l); err == nil {
		if err = h.setLock(l, a.recallAlls); err == nil {
			return l, nil
		}
	}
	_, _ = l.giveUp("it was not accepted")
	a.releaseInBackground()
	var e *api.Error
	if errors.As(err, &e) {
		return nil, withOperation(e, "acquire", h.path)
	}
	return nil, a.leftError(ctx, &api.Error{Code: api.Unavailable, Op: "acquire", Path: h.path, Err: err,
		Message: "the lock was granted, but is given back, because the session was in jeopardy until the end"})
}

// setLock makes l the lock of the handle, unless l is lost. The event of the loss may overtake the grant. So
// may the end of the session, which is acknowledged after the release of all handles' locks: a later lock is
// not handed out. A handle holds one lock: of two grants, in any order, the earlier one is lost.
//
// recallAlls is that of the handle when the call began. If recallAll was called since, setLock recalls the lock:
// a new master does not know its handle.
func (h *Handle) setLock(l *Lock, recallAlls uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, was, generation := &h.lock, h.lock.owned, l.seq.Generation
	switch {
	case h.unusable != nil:
		return h.unusable
	case k.lostGeneration >= generation:
		return &api.Error{Code: api.LockLost, Message: k.lostReason}
	case was != nil && was.seq.Generation > generation, k.idle != nil && k.idle.seq.Generation > generation:
		return &api.Error{Code: api.LockLost, Message: lostSinceText}
	}
	k.owned = l
	if why := h.client.session.errIfGone(); why != nil {
		k.owned = was
		return why
	}
	k.idle = nil // of an earlier grant
	if k.recallAlls != recallAlls {
		k.recall(h, generation)
	}
	//mutant: if was != nil && was.seq.Generation < l.seq.Generation && false {
	if was != nil && was.seq.Generation < l.seq.Generation && was.markTaken(lostSinceText) {
		h.enqueueEvent(api.Event{Kind: api.EventLockLost, Generation: was.seq.Generation, Explanation: lostSinceText})
	}
	return nil
}

// lostSinceText explains the loss of a lock whose handle has a later one. After a fail-over nothing else
// reports it.
const lostSinceText = "the lock was taken away, and granted to this handle again since"

func (a *acquireCall) releaseInBackground() {
	a.handle.client.janitor.add(func(ctx context.Context) { a.releaseGrant(ctx, a.granted) })
}

func (a *acquireCall) releaseGrant(ctx context.Context, g *chubbypb.Granted) {
	a.handle.client.giveBack(ctx, "release", a.handle.path, releaseSender(a.handle.currentToken(), api.Generation(g.GetGeneration()), false))
}

// settleAcquire withdraws an abandoned request, or releases its lock.
func (a *acquireCall) settleAcquire(ctx context.Context, number uint64) {
	reply, _ := a.handle.client.withdraw(ctx, "acquire", a.handle.path, number)
	a.handle.client.numbers.finish(number)
	if g := reply.GetGranted(); g != nil {
		a.releaseGrant(ctx, g)
	}
}

// leftError is the error of an abandoned call. The outcome is certain: the client undoes the call, so the
// lock is not held.
func (a *acquireCall) leftError(ctx context.Context, err error) error {
	var e *api.Error
	if !errors.As(err, &e) || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err // an answer, not the end of ctx
	}
	own := *e
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		own.Code = api.Cancelled
	case a.queued != nil || a.lastTry != nil:
		own.Code = api.DeadlineExceeded
	case own.Code == api.Uncertain:
		own.Code = api.Unavailable
	}
	if q := a.queued; q != nil {
		own.Holders, own.Remaining = chubbypb.Holders(q.GetHolders()), time.Duration(q.GetDelayedNs())
		own.Message = fmt.Sprintf("gave up waiting in place %d of %d; the lock is not held, and the request is withdrawn", q.GetPlace(), q.GetWaiting())
	} else if e := a.lastTry; e != nil {
		own.Holders, own.Remaining, own.Message = e.Holders, e.Remaining, leftPollingText()
	}
	if len(own.Holders) > 0 {
		own.Message += "; held by " + whoHolds(own.Holders)
	}
	return &own
}

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
			q := a.options.tryRequest()
			q.Caller, q.Mutation, q.Handle, q.Mode = caller, m, a.token, chubbypb.LockMode(a.mode)
			reply, err := t.data.chubby.TryAcquire(ctx, q)
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

func nameHolders(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.LockHeld || len(e.Holders) == 0 {
		return err
	}
	own := *e
	own.Message = "held by " + whoHolds(e.Holders) + "; " + own.Message
	return &own
}

const maxNamed = 3

// whoHolds describes the holders: "ann on web3 (pid 4711, s42: deploy)".
func whoHolds(holders []api.Holder) string {
	var list []string
	for _, h := range holders[:min(len(holders), maxNamed)] {
		who := fmt.Sprintf("%s on %s (pid %d, %v", cmp.Or(h.Principal, "somebody"), cmp.Or(h.Host, "an unknown host"), h.PID, h.Session)
		if h.Reason != "" {
			who += ": " + h.Reason
		}
		list = append(list, who+")")
	}
	if more := len(holders) - maxNamed; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
