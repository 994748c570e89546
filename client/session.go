package client

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// The longest time between two readings of the clock. Go's timers stop while the machine is suspended, so one
// may fire too late by that time; the clock of the Config does not stop.
const (
	maxTickHolding = 100 * time.Millisecond // while locks are held
	maxTickIdle    = time.Second            // without locks
)

// maxEpochWait is how long a call refused for its epoch waits for a KeepAlive with the new one, before it
// looks for the master.
const maxEpochWait = time.Second

// sessionState is this process's knowledge of its session, and of the locks that depend on it. Every use of
// the session asks it first, and it reads the clock before it answers: so late timers or goroutines are
// harmless.
type sessionState struct {
	token    []byte // identifies the session in requests
	id       api.SessionID
	cfg      Config
	clock    session.Clock // of cfg
	notifier *notifier     // calls the logger and OnState, without mu
	// Both are called with mu held: when the lease has run out, and to say why no master answers.
	onExpired func()
	silence   func() string
	ended     context.Context //nolint:containedctx // of the session: ended, with the cause, when the session is gone
	end       context.CancelCauseFunc
	wake      chan struct{} // capacity 1: has watchClock check the clock now, as something may be due earlier

	counters counters

	// mu guards what follows. cache.mu, janitor.mu, notifier.mu and locator.mu may be taken under it.
	mu       sync.Mutex
	local    *session.Local
	epoch    api.Epoch // of the newest reply
	state    session.State
	endError *api.Error               // why the state is Gone; nil before
	locks    session.Timetable[*Lock] // with live contexts, by lock-delay
	changed  chan struct{}            // closed and replaced at every grant and change of state
	// unansweredAt is the channel changed when a cleanup call was last abandoned without an answer.
	unansweredAt chan struct{}
}

func newSessionState(ctx context.Context, c *Client, sent session.Instant, reply *chubbypb.CreateSessionReply) *sessionState {
	s := &sessionState{
		token:    reply.GetSession(),
		id:       api.SessionID(reply.GetId()),
		cfg:      c.cfg,
		clock:    c.cfg.Clock,
		notifier: c.notifier,
		//mutant: onExpired: func() {},
		onExpired: func() { c.cache.flush(0) },
		silence:   c.cell.locator.silence,
		wake:      make(chan struct{}, 1),
		local:     session.NewLocal(sent, grantOf(reply.GetEpoch(), reply.GetGrant())),
		epoch:     api.Epoch(reply.GetEpoch()),
		state:     session.Safe,
		changed:   make(chan struct{}),
	}
	s.ended, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

func grantOf(epoch uint64, g *chubbypb.Grant) session.Grant {
	return session.Grant{
		Epoch: api.Epoch(epoch), Number: g.GetNumber(), Lease: time.Duration(g.GetLeaseNs()), Parked: time.Duration(g.GetParkedNs()),
	}
}

// refresh updates the state by the clock, and returns it; mu is held. A session found gone stays gone,
// whatever arrives later. now was just read, with mu held.
func (s *sessionState) refresh(now session.Instant) session.State {
	if s.state == session.Gone {
		return s.state
	}
	switch state := s.local.State(now, s.cfg.Grace); {
	case state == session.Gone:
		why := fmt.Sprintf("the lease ran out, and %v of grace after it", s.cfg.Grace)
		if heard := s.silence(); heard != "" {
			why += " (" + heard + ")"
		}
		s.setGone(GraceOver, why)
		return s.state
	case state != s.state:
		s.setState(state, now)
	}
	s.endDueLocks(now)
	return s.state
}

// setState changes the state to Safe or Jeopardy; mu is held.
func (s *sessionState) setState(to session.State, now session.Instant) {
	was := s.state
	s.state = to
	heard := ""
	left := s.local.End().Sub(now)
	switch {
	case to == session.Jeopardy:
		left += s.cfg.Grace
		heard = s.silence()
		s.counters.jeopardies.Add(1)
		s.onExpired()
	case was == session.Jeopardy:
		s.counters.rescues.Add(1)
	}
	s.notifyChanged()
	s.report(slog.LevelWarn, StateChange{State: to, Epoch: s.epoch, Left: left, Heard: heard})
}

// sessionUnknownText is for a session unknown to the master; an event reports an operator's act.
const sessionUnknownText = "the cell has ended it"

// setGone ends the session for this process; mu is held.
func (s *sessionState) setGone(cause Cause, explanation string) {
	s.state = session.Gone
	s.endError = &api.Error{Code: api.SessionExpired, Err: cause,
		Message: fmt.Sprintf("session %v is over: %s; its handles and locks are gone, open a new session", s.id, explanation)}
	s.locks.Clear()
	s.onExpired()
	s.end(s.endError) // also ends the contexts of the locks, its children
	s.notifyChanged()
	if cause != Closed {
		s.report(slog.LevelError, StateChange{State: session.Gone, Epoch: s.epoch, Err: s.endError})
	}
}

// report has the notifier log a change of state, and call OnState.
func (s *sessionState) report(level slog.Level, change StateChange) {
	s.notifier.enqueueChange(func() {
		about := []any{"session", s.id, "epoch", change.Epoch, "left", change.Left}
		if change.Err != nil {
			about = append(about, "error", change.Err)
		}
		if change.Heard != "" {
			about = append(about, "said", change.Heard)
		}
		s.cfg.Logger.Log(s.ended, level, "the session is "+change.State.String(), about...)
		if s.cfg.OnState != nil {
			s.cfg.OnState(change)
		}
	})
}

// notifyChanged wakes the waiters on changed; mu is held.
func (s *sessionState) notifyChanged() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// endSession ends the session for this process. It returns false if the session had ended before.
func (s *sessionState) endSession(cause Cause, explanation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refresh(s.clock()) == session.Gone {
		return false
	}
	s.setGone(cause, explanation)
	return true
}

func (s *sessionState) errIfGone() *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(s.clock())
	return s.endError
}

// await waits until is says so, which it asks with mu held, whenever the state may have changed.
func (s *sessionState) await(ctx context.Context, is func(state session.State) bool) (waited bool, err error) {
	for ; ; waited = true {
		s.mu.Lock()
		reached := is(s.refresh(s.clock()))
		changed := s.changed
		s.mu.Unlock()
		if reached {
			return waited, nil
		}
		if err = awaitClosed(ctx, nil, changed); err != nil {
			return true, err
		}
	}
}

// awaitSafe waits until the session is safe. It returns the Caller for a request, and whether it waited.
func (s *sessionState) awaitSafe(ctx context.Context) (caller *chubbypb.Caller, waited bool, err error) {
	var why *api.Error
	waited, err = s.await(ctx, func(state session.State) bool {
		caller, why = s.callerLocked(), s.endError
		return state != session.Jeopardy
	})
	if why != nil {
		err = why
	}
	return caller, waited, err
}

// readClock reads the clock once, and returns the epoch and whether the session was safe then. Unlike refresh
// it does not act on the result: applyGrant does, before it extends the lease.
func (s *sessionState) readClock() (now session.Instant, epoch api.Epoch, safe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.clock()
	return now, s.epoch, s.state != session.Gone && s.local.State(now, s.cfg.Grace) == session.Safe
}

// callerIfSafe returns the Caller for a request, nil if the session is not safe.
func (s *sessionState) callerIfSafe() *chubbypb.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refresh(s.clock()) != session.Safe {
		return nil
	}
	return s.callerLocked()
}

func (s *sessionState) wireCaller() *chubbypb.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callerLocked()
}

func (s *sessionState) callerLocked() *chubbypb.Caller {
	return &chubbypb.Caller{Session: s.token, Epoch: uint64(s.epoch)}
}

// newestGrant returns the number of the newest grant of the epoch, or 0. Each epoch counts from 1.
func (s *sessionState) newestGrant() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.local.Epoch() != s.epoch {
		return 0
	}
	return s.local.Number()
}

// awaitEpochAfter waits for an epoch after the given one, or the end of the session, at most maxEpochWait. It
// reports whether it came.
func awaitEpochAfter(ctx context.Context, s *sessionState, epoch uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, maxEpochWait)
	defer cancel()
	_, err := s.await(ctx, func(state session.State) bool { return state == session.Gone || uint64(s.epoch) > epoch })
	return err == nil
}

type grantEffect uint8

const (
	grantStale    grantEffect = 1 // an earlier epoch, or the session is gone: ignore the whole reply
	grantIgnored  grantEffect = 2 // no extension of the lease
	grantExtended grantEffect = 3 // an extension of the lease
	grantNewEpoch grantEffect = 4 // the first of its epoch
)

func (s *sessionState) applyGrant(sent session.Instant, g session.Grant) grantEffect {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A session gone before this reply stays gone.
	if s.refresh(s.clock()) == session.Gone || g.Epoch < s.epoch {
		return grantStale
	}
	effect := grantIgnored
	if s.local.Extend(sent, g) {
		effect = grantExtended
	}
	if g.Epoch > s.epoch {
		s.epoch, effect = g.Epoch, grantNewEpoch
	}
	if effect != grantIgnored {
		s.notifyChanged()
		s.refresh(s.clock())
		wakeUp(s.wake)
	}
	return effect
}

func (s *sessionState) describe() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("session %v: %v", s.id, s.refresh(s.clock()))
}

func (s *sessionState) watchClock() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ended.Done():
			return
		}
		timer.Reset(s.checkClock())
	}
}

// checkClock refreshes the state, and returns the time until the next check.
func (s *sessionState) checkClock() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	tick, until := maxTickIdle, s.local.End()
	if s.refresh(s.clock()) == session.Jeopardy {
		until = until.Add(s.cfg.Grace)
	}
	if due, held := s.nextLockDeadline(); held {
		tick, until = maxTickHolding, min(until, due)
	}
	return min(tick, max(until.Sub(s.clock()), 0)) // 0: it became due in between
}

// counters are the growing counts of Stats, without the cache's.
type counters struct {
	keepAlives, keepAlivesFailed, jeopardies, rescues, failOvers, attempts, eventsDelivered, eventsDropped atomic.Uint64

	lastingChanges atomic.Uint64 // lasting changes that have, or may have, taken effect; not in Stats
}
