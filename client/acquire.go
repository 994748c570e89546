package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// LockOption qualifies Acquire and TryAcquire.
type LockOption func(*lockOptions)

type lockOptions struct {
	reason   string
	onQueued func(Queued)
}

// Reason is shown to those who look who holds the lock and why; at most
// api.MaxReason bytes.
func Reason(text string) LockOption { return func(o *lockOptions) { o.reason = text } }

// Queued is how things stand for one who waits for a lock.
type Queued struct {
	Place, Waiting int           // 1 is next; of so many
	Holders        []api.Holder  // who holds the lock; at most api.MaxNamed of them
	MoreHolders    int           // besides those
	Delayed        time.Duration // so long nobody may have it, because a holder failed (Chubby §2.4)
	// Estimate is how long the wait may be, if those before take as long as others did of late; 0 if the
	// master does not know. It is a guess: nothing but a person's patience should depend on it.
	Estimate time.Duration
}

// OnQueued is called, by the goroutine that called Acquire, when it has to wait
// and whenever its place in the queue changes, or who holds the lock.
func OnQueued(f func(Queued)) LockOption { return func(o *lockOptions) { o.onQueued = f } }

// acquiring is one call of Acquire or TryAcquire.
type acquiring struct {
	handle  *Handle
	token   []byte // of the handle, the same in every attempt
	mode    api.LockMode
	options lockOptions
	ticket  []byte           // of the place in the queue
	queued  *chubbypb.Queued // the newest; nil before the first
	lastTry *api.Error       // of the last try without a queue place; nil if there was none
	granted *chubbypb.Granted
}

func (h *Handle) acquiring(op string, mode api.LockMode, options []LockOption) (*acquiring, error) {
	a := &acquiring{handle: h, mode: mode}
	for _, option := range options {
		option(&a.options)
	}
	switch {
	case !mode.Valid():
		return nil, &api.Error{Code: api.InvalidArgument, Op: op, Path: h.path, Message: fmt.Sprintf("%v is not a mode of a lock", mode)}
	case len(a.options.reason) > api.MaxReason:
		return nil, &api.Error{Code: api.InvalidArgument, Op: op, Path: h.path,
			Message: fmt.Sprintf("the reason is %d bytes long; at most %d are allowed", len(a.options.reason), api.MaxReason)}
	}
	return a, nil
}

// Acquire waits in the lock's queue and returns the lock. If ctx ends first the
// error is DeadlineExceeded or Cancelled, names the holders last heard of, and
// the request is withdrawn in the background: the lock is not held, and if it
// was granted meanwhile it is released. A second Acquire through a handle that
// holds the lock is LockHeld: locks are not recursive.
//
// At most 192 requests of a session, and 1,000 of all sessions of a Cell, are in queues
// at a time. Others try their locks
// every few seconds until there is a place: they find one that is free, but are not
// in the order of those that wait, and OnQueued is not called for them.
func (h *Handle) Acquire(ctx context.Context, mode api.LockMode, options ...LockOption) (*Lock, error) {
	a, err := h.acquiring("acquire", mode, options)
	if err != nil {
		return nil, err
	}
	return a.run(ctx, "acquire", a.awaitGrant)
}

// run makes the call, and the lock of its answer.
func (a *acquiring) run(ctx context.Context, op string, ask func(ctx context.Context) error) (*Lock, error) {
	h := a.handle
	within, leave, err := h.enter(ctx, op)
	if err != nil {
		return nil, err
	}
	defer leave()
	h.mu.Lock()
	h.locked, a.token = true, h.current()
	h.mu.Unlock()
	if err := ask(within); err != nil {
		return nil, h.poisoned(op, named(a.left(ctx, err)))
	}
	l, err := a.lock(within)
	return l, h.poisoned(op, err)
}

// TryAcquire takes the lock if it is free, else it is LockHeld, with the
// holders, or LockDelayed, with the time that remains. If ctx ends before an
// answer the lock is not held, as with Acquire.
func (h *Handle) TryAcquire(ctx context.Context, mode api.LockMode, options ...LockOption) (*Lock, error) {
	a, err := h.acquiring("try to acquire", mode, options)
	if err != nil {
		return nil, err
	}
	return a.run(ctx, "try to acquire", func(ctx context.Context) error { return h.client.mutate(ctx, a.tryMutation("try to acquire")) })
}

// queue sends Acquire and listens until the lock is granted. With the ticket of
// an earlier attempt it gets its place back, also from another master.
func (a *acquiring) queue(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The first answer comes soon, or the replica hangs.
	first := time.AfterFunc(a.handle.client.cfg.CallTimeout, cancel)
	defer first.Stop()
	answered := a.handle.client.cell.dispatcher.watchAnswer(ctx, t)
	defer answered()
	stream, err := t.data.chubby.Acquire(ctx, &chubbypb.AcquireRequest{
		Caller: caller, Mutation: m, Handle: a.token, Mode: chubbypb.LockMode(a.mode), Reason: a.options.reason, Ticket: a.ticket,
	})
	if err != nil {
		return err
	}
	for {
		reply, err := stream.Recv()
		first.Stop()
		answered()
		if errors.Is(err, io.EOF) {
			return api.Errorf(api.Uncertain, "the queue ended without an answer")
		}
		if err != nil {
			return err
		}
		if a.granted = reply.GetGranted(); a.granted != nil {
			return nil
		}
		if q := reply.GetQueued(); q != nil {
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

// lock makes a lock of the grant. While the session is in jeopardy it waits: a
// lock is not returned that cannot be relied on.
func (a *acquiring) lock(ctx context.Context) (*Lock, error) {
	h := a.handle
	l, err := newLock(h, a.mode, a.granted)
	if err != nil {
		a.giveBack()
		return nil, err
	}
	if err = h.client.session.trackLock(ctx, l); err == nil {
		if err = h.adopt(l); err == nil {
			return l, nil
		}
	}
	_, _ = l.drop("it was not accepted")
	a.giveBack()
	var e *api.Error
	if errors.As(err, &e) {
		return nil, about(e, "acquire", h.path)
	}
	return nil, a.left(ctx, &api.Error{Code: api.Unavailable, Op: "acquire", Path: h.path, Err: err,
		Message: "the lock was granted, but is given back, because the session was in jeopardy until the end"})
}

// adopt makes the lock that of the handle, unless it has been lost already: an
// event may overtake the answer that it is about. So may the end of the session,
// which is acknowledged when the locks of all handles have been let go: one that
// is not among them then is not handed out. A handle holds one lock at a time: of two
// grants, whose answers come in any order, the earlier is lost.
func (h *Handle) adopt(l *Lock) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.broken != nil:
		return h.broken
	case h.lost >= l.seq.Generation:
		return &api.Error{Code: api.LockLost, Message: h.reason}
	case h.lock != nil && h.lock.seq.Generation > l.seq.Generation:
		return &api.Error{Code: api.LockLost, Message: takenSince}
	}
	was := h.lock
	h.lock = l
	if why := h.client.session.errIfGone(); why != nil {
		h.lock = was
		return why
	}
	if was != nil && was.seq.Generation < l.seq.Generation && was.lose(takenSince) {
		h.enqueue(api.Event{Kind: api.EventLockLost, Generation: was.seq.Generation, Explanation: takenSince})
	}
	return nil
}

// takenSince is why a lock is lost whose handle was granted a later one: nothing else may
// have told of that, if the master that took the lock away has failed.
const takenSince = "the lock was taken away, and granted to this handle again since"

// giveBack releases a lock that was granted and is not wanted.
func (a *acquiring) giveBack() {
	c := a.handle.client
	c.janitor.leave(func(ctx context.Context) { a.release(ctx, a.granted) })
}

func (a *acquiring) release(ctx context.Context, g *chubbypb.Granted) {
	c := a.handle.client
	_ = c.insist(ctx, "release", a.handle.path, c.numbers.allocateNow(), classCleanup, releaser(a.handle.key(), api.Generation(g.GetGeneration())))
}

// undo settles a request that was left: it is withdrawn, or, if the lock was
// granted, the lock is released.
func (a *acquiring) undo(ctx context.Context, number uint64) {
	reply, _ := a.handle.client.withdraw(ctx, "acquire", a.handle.path, number)
	a.handle.client.numbers.finish(number)
	if g := reply.GetGranted(); g != nil {
		a.release(ctx, g)
	}
}

// named puts into the text of a refusal who holds the lock, and why.
func named(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.LockHeld || len(e.Holders) == 0 {
		return err
	}
	own := *e
	own.Message = "held by " + whoHolds(e.Holders) + "; " + own.Message
	return &own
}

// maxNamed is how many holders a text names.
const maxNamed = 3

// whoHolds says who the holders are: "ann on web3 (pid 4711, s42: deploy)".
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

// left is the error of one who gave up. The outcome is not uncertain to him:
// whatever it was is undone.
func (a *acquiring) left(ctx context.Context, err error) error {
	var e *api.Error
	if !errors.As(err, &e) || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err // it is an answer
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
