package main

import (
	"cmp"
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// passedFields is a lock that a session held which a drill has ended.
type passedFields struct {
	Path   string         `json:"path"`
	Holder []holderFields `json:"holders"` // that have it now; none if nobody wants it
	AfterS *float64       `json:"after_s"` // from the end of the session until they had it, or until it was free; null if that took too long

	who []api.Holder
}

// lossFields is what became of a session that a drill has ended.
type lossFields struct {
	Session  string         `json:"session"`
	GoneS    *float64       `json:"gone_after_s"` // null if it is still there
	Locks    []passedFields `json:"locks"`
	Returned *string        `json:"returned_as"` // a session of the same principal and host that has begun since; null if there is none
}

// lossLook is between two looks at the locks of a session that was ended: what it reports is exact to so much.
const lossLook = 50 * time.Millisecond

// loseSession ends the session, and watches who gets its locks.
func (o *drillOptions) loseSession(ctx context.Context, operator *client.Client, before *cellView, r *drillReport) error {
	victim, cell := before.sessions[o.session], operator.Cell()
	held, err := cell.LocksOf(ctx, o.session)
	if err != nil {
		return err
	}
	loss := &lossFields{Session: o.session.String(), Locks: []passedFields{}}
	r.Loss = loss
	bound := drillSlack + victim.LeftMost
	for _, l := range held[:min(len(held), maxHit)] {
		loss.Locks = append(loss.Locks, passedFields{Path: l.Path, Holder: []holderFields{}})
		for _, h := range l.Holders {
			if h.Session == o.session {
				bound = max(bound, drillSlack+victim.LeftMost+h.LockDelay)
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, outOfTime{bound})
	defer cancel()
	reason := cmp.Or(o.reason, "a drill (chubbyctl drill session-loss)")
	watch := stopwatch()
	if err := operator.EndSession(ctx, o.session, reason); err != nil {
		return err
	}
	for left := len(loss.Locks); (left > 0 || loss.GoneS == nil) && ctx.Err() == nil; {
		if left, err = o.lookAtLoss(ctx, cell, loss, watch, r); err != nil {
			break // ctx has ended; what was seen is reported
		}
		pauseFor(ctx, lossLook)
	}
	if hasEnded(ctx) {
		return nil
	}
	return o.findReturned(ctx, cell, before, victim, loss)
}

// lookAtLoss looks at the session and at those of its locks that have not passed on yet.
func (o *drillOptions) lookAtLoss(ctx context.Context, cell *client.Cell, loss *lossFields, watch func() time.Duration, r *drillReport) (left int, err error) {
	if loss.GoneS == nil {
		_, there, err := cell.FindSession(ctx, o.session)
		if err != nil {
			return 0, err
		}
		if !there {
			at := term.Seconds(watch())
			loss.GoneS = &at
		}
	}
	for i := range loss.Locks {
		one := &loss.Locks[i]
		if one.AfterS != nil {
			continue
		}
		e, err := cell.Explain(ctx, one.Path)
		if err != nil {
			return 0, err
		}
		if !hasPassed(e.Lock, o.session) {
			left++
			continue
		}
		took := watch()
		at := term.Seconds(took)
		one.AfterS, r.longest, one.who = &at, max(r.longest, took), e.Lock.Holders
		for _, h := range e.Lock.Holders {
			one.Holder = append(one.Holder, newHolderFields(h))
		}
	}
	return left, nil
}

// hasPassed reports whether a session has a lock no more, and another has it or can have it.
func hasPassed(l client.LockInfo, id api.SessionID) bool {
	for _, h := range l.Holders {
		if h.Session == id {
			return false
		}
	}
	return len(l.Holders) > 0 || l.Delayed == 0 && len(l.Waiters) == 0
}

// findReturned looks for a session that the owner of the one that was ended has opened since. It gives him a moment.
func (o *drillOptions) findReturned(ctx context.Context, cell *client.Cell, before *cellView, victim client.SessionInfo, loss *lossFields) error {
	for range int(drillReturn / lossLook) {
		for s, err := range cell.EachSession(ctx) {
			if err != nil {
				return err
			}
			if _, old := before.sessions[s.Session]; !old && s.Principal == victim.Principal && s.Host == victim.Host {
				id := s.Session.String()
				loss.Returned = &id
				return nil
			}
		}
		if pauseFor(ctx, lossLook); hasEnded(ctx) {
			return nil
		}
	}
	return nil
}

// drillReturn is how long the owner of a session has to open another, after its locks have passed on.
const drillReturn = 3 * time.Second
