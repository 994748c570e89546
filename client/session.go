package client

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// How often the clock is looked at although nothing is due. Go's timers stop
// while the machine is suspended, so that one may fire as much too late as the
// machine slept; the clock of the Config does not stop.
const (
	tickHolding = 100 * time.Millisecond // while locks are held
	tickIdle    = time.Second            // else
)

// mostStale is how long a call that was told of a newer epoch waits for the
// session to hear of it, before it looks for the master again.
const mostStale = time.Second

// belief is what the client may believe of its session, and of the locks that
// depend on it. Everybody who uses the session asks it first, and it looks at
// the clock first, so that nothing is believed for longer because a timer or a
// goroutine was late.
type belief struct {
	token []byte // the session, as the cell names it to us
	id    api.SessionID
	clock session.Clock
	grace time.Duration
	log   *slog.Logger
	lapse func() // called when the lease has run out, under mu
	// told runs what is to be told soon, in order, outside of mu.
	told   *notifier
	notify func(StateChange)
	over   context.Context //nolint:containedctx // it is the session's, not a call's: ended, with the cause, when the session is gone
	finish context.CancelCauseFunc
	wake   chan struct{} // capacity 1: something else is due next

	counters counters

	mu     sync.Mutex // guards what follows
	local  *session.Local
	epoch  api.Epoch // of the newest reply
	state  session.State
	why    *api.Error               // why state is Gone
	locks  session.Timetable[*Lock] // whose contexts have not ended, by their lock-delays
	turned chan struct{}            // closed and replaced at every grant and change of state
	// unheard is turned, as long as nothing was heard since a call that gives something back was made in vain.
	unheard chan struct{}
}

func newBelief(ctx context.Context, cfg Config, sent session.Instant, reply *chubbypb.CreateSessionReply, told *notifier, lapse func()) *belief {
	b := &belief{
		token: reply.GetSession(), id: api.SessionID(reply.GetId()),
		clock: cfg.Clock, grace: cfg.Grace, log: cfg.Logger, told: told, lapse: lapse, notify: cfg.OnState,
		wake: make(chan struct{}, 1), turned: make(chan struct{}),
		local: session.NewLocal(sent, grantOf(reply.GetEpoch(), reply.GetGrant())),
		epoch: api.Epoch(reply.GetEpoch()), state: session.Safe,
	}
	b.over, b.finish = context.WithCancelCause(context.WithoutCancel(ctx))
	return b
}

func grantOf(epoch uint64, g *chubbypb.Grant) session.Grant {
	return session.Grant{
		Epoch: api.Epoch(epoch), Number: g.GetNumber(), Lease: time.Duration(g.GetLeaseNs()), Parked: time.Duration(g.GetParkedNs()),
	}
}

// look brings the state up to date with the clock; mu is held. The session is
// over as soon as one look finds it so, whatever arrives later.
func (b *belief) look() session.State {
	if b.state == session.Gone {
		return b.state
	}
	now := b.clock()
	switch s := b.local.State(now, b.grace); {
	case s == session.Gone:
		b.stop(GraceOver, fmt.Sprintf("the lease ran out, and %v of grace after it", b.grace))
		return b.state
	case s != b.state:
		b.turn(s, now)
	}
	b.cull(now)
	return b.state
}

// turn changes the state to one of the living; mu is held.
func (b *belief) turn(s session.State, now session.Instant) {
	was := b.state
	b.state = s
	left := b.local.End().Sub(now)
	switch {
	case s == session.Jeopardy:
		left += b.grace
		b.counters.jeopardies.Add(1)
		b.lapse()
	case was == session.Jeopardy:
		b.counters.rescues.Add(1)
	}
	b.broadcast()
	b.tell(slog.LevelWarn, StateChange{State: s, Epoch: b.epoch, Left: left})
}

// notKnown is what is said of a session that the master refuses as one that has
// ended; who ended it, if anybody did, stands in an event.
const notKnown = "the cell has ended it"

// stop ends the session for this process; mu is held.
func (b *belief) stop(cause Cause, explanation string) {
	b.state = session.Gone
	b.why = &api.Error{Code: api.SessionExpired, Err: cause,
		Message: fmt.Sprintf("session %v is over: %s; its handles and locks are gone, open a new session", b.id, explanation)}
	b.locks.Clear()
	b.lapse()
	b.finish(b.why) // the contexts of its locks are children of over
	b.broadcast()
	if cause != Closed {
		b.tell(slog.LevelError, StateChange{State: session.Gone, Epoch: b.epoch, Err: b.why})
	}
}

// tell logs a change, and hands it to whom it concerns.
func (b *belief) tell(level slog.Level, change StateChange) {
	b.told.change(func() {
		b.log.Log(b.over, level, "the session is "+change.State.String(),
			"session", b.id, "epoch", change.Epoch, "left", change.Left, "error", change.Err)
		if b.notify != nil {
			b.notify(change)
		}
	})
}

func (b *belief) broadcast() {
	close(b.turned)
	b.turned = make(chan struct{})
}

// end ends the session for this process, unless it is over already; it reports
// whether it was not.
func (b *belief) end(cause Cause, explanation string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.look() == session.Gone {
		return false
	}
	b.stop(cause, explanation)
	return true
}

// gone returns why the session is over, nil while it is not.
func (b *belief) gone() *api.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	return b.why
}

// during returns ctx, but ended when the session is over.
func (b *belief) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.over, func() { cancel(context.Cause(b.over)) })
	return ctx, func() { stop(); cancel(nil) }
}

// ready waits until the session is safe and returns what stands in its calls.
// It reports whether it had to wait.
func (b *belief) ready(ctx context.Context) (caller *chubbypb.Caller, waited bool, err error) {
	for {
		b.mu.Lock()
		state, why, turned := b.look(), b.why, b.turned
		caller = &chubbypb.Caller{Session: b.token, Epoch: uint64(b.epoch)}
		b.mu.Unlock()
		switch state {
		case session.Safe:
			return caller, waited, nil
		case session.Gone:
			return nil, waited, why
		}
		waited = true
		select {
		case <-turned:
		case <-ctx.Done():
			return nil, waited, contextError(ctx)
		}
	}
}

// safe looks at the clock, and reports whether the lease runs.
func (b *belief) safe() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.look() == session.Safe
}

// moment reads the clock, once, and says what may be believed then. Unlike look
// it leaves what follows of that to others: it is on the way of every request.
func (b *belief) moment() (now session.Instant, epoch api.Epoch, safe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.clock()
	return now, b.epoch, b.state != session.Gone && b.local.State(now, b.grace) == session.Safe
}

// now returns what stands in calls, nil if the session is not safe.
func (b *belief) now() *chubbypb.Caller {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.look() != session.Safe {
		return nil
	}
	return &chubbypb.Caller{Session: b.token, Epoch: uint64(b.epoch)}
}

// caller returns what stands in calls, without looking whether any may be made.
func (b *belief) caller() *chubbypb.Caller {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &chubbypb.Caller{Session: b.token, Epoch: uint64(b.epoch)}
}

// newest returns the number of the newest grant of the epoch, 0 before the first:
// those of each are counted anew.
func (b *belief) newest() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.local.Epoch() != b.epoch {
		return 0
	}
	return b.local.Number()
}

// await waits until the session has heard of an epoch after the one given, and
// reports whether it has.
func (b *belief) await(ctx context.Context, epoch uint64) bool {
	timer := time.NewTimer(mostStale)
	defer timer.Stop()
	for {
		b.mu.Lock()
		newer, turned := uint64(b.epoch) > epoch, b.turned
		b.mu.Unlock()
		if newer {
			return true
		}
		select {
		case <-turned:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// worth is what a reply's grant was worth.
type worth uint8

const (
	past     worth = 1 // it is of an earlier epoch, or the session is over: the whole reply means nothing
	nothing  worth = 2 // it extends nothing
	extended worth = 3 // it counts
	newEpoch worth = 4 // it is the first that was heard of an epoch
)

// extend takes a reply's grant for a request sent at that instant.
func (b *belief) extend(sent session.Instant, g session.Grant) worth {
	b.mu.Lock()
	defer b.mu.Unlock()
	// What was over before this reply was looked at stays over.
	if b.look() == session.Gone || g.Epoch < b.epoch {
		return past
	}
	w := nothing
	if b.local.Extend(sent, g) {
		w = extended
	}
	if g.Epoch > b.epoch {
		b.epoch, w = g.Epoch, newEpoch
	}
	if w != nothing {
		b.broadcast()
		b.look()
		b.rearm()
	}
	return w
}

// describe says how the session is, for people.
func (b *belief) describe() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("session %v: %v", b.id, b.look())
}

// run looks at the clock whenever something is due, until the session is over.
func (b *belief) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-b.wake:
		case <-b.over.Done():
			return
		}
		timer.Reset(b.next())
	}
}

// next looks at the clock and returns when to do so again.
func (b *belief) next() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	tick, until := tickIdle, b.local.End()
	if b.look() == session.Jeopardy {
		until = until.Add(b.grace)
	}
	if due, held := b.due(); held {
		tick, until = tickHolding, min(until, due)
	}
	return min(tick, max(until.Sub(b.clock()), 0)) // 0: it fell due in between
}

// rearm makes run look again when something else is due next.
func (b *belief) rearm() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
