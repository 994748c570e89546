package client

import (
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// patience is how long to wait for the answer to a KeepAlive: the time it is
// parked, and then a sixth of the lease. A quarter is then left to find another
// master, if this one hangs.
func patience(lease time.Duration) time.Duration {
	lease = max(lease, api.MinLease) // should a master ever promise less
	return session.Due(lease) + lease/6
}

// keepAlive keeps the session alive until ctx, the session's, ends: one
// KeepAlive is in flight at any time (Chubby §2.8).
func (c *Client) keepAlive(ctx context.Context) {
	var p pause
	var heard uint64 // the sequence of the last event received in this epoch
	for ctx.Err() == nil {
		t, err := c.finder.find(ctx)
		if err != nil {
			c.cfg.Logger.WarnContext(ctx, "no master to keep the session alive", "session", c.session.id, "error", err)
			p.wait(ctx)
			continue
		}
		sent := c.cfg.Clock()
		reply, e := c.keepAliveOnce(ctx, t, heard)
		if e != nil {
			c.missed(ctx, t, e, &p)
			continue
		}
		switch w := c.session.extend(sent, grantOf(reply.GetEpoch(), reply.GetGrant())); {
		case w == past:
			c.finder.drop(t)
			p.wait(ctx)
			continue
		case w == nothing && len(reply.GetEvents()) == 0:
			p.wait(ctx) // or it might go on like this
		case w == newEpoch:
			heard = 0
			c.cfg.Logger.InfoContext(ctx, "another master is in office", "session", c.session.id, "epoch", reply.GetEpoch(), "address", t.address)
			c.suspect()
		default:
			p = pause{}
		}
		var lost []*Lock
		heard, lost = c.hear(ctx, heard, reply.GetEvents())
		c.letGo(ctx, lost)
	}
}

// keepAliveOnce sends one KeepAlive and waits for the answer.
func (c *Client) keepAliveOnce(ctx context.Context, t *target, heard uint64) (*chubbypb.KeepAliveReply, *api.Error) {
	ctx, cancel := context.WithTimeout(ctx, patience(c.Lease()))
	defer cancel()
	var reply *chubbypb.KeepAliveReply
	e, _ := c.finder.attempt(ctx, call{open: true, attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) (err error) {
		reply, err = t.chubby.KeepAlive(ctx, &chubbypb.KeepAliveRequest{
			Caller: c.session.caller(), Acknowledged: heard, Grant: c.session.newest(),
		})
		return err
	}}, t, nil)
	return reply, e
}

// missed deals with a KeepAlive that was not answered, or refused. Only the
// master's word that it is over ends a session before its time; about any other
// error another master may think differently.
func (c *Client) missed(ctx context.Context, t *target, e *api.Error, p *pause) {
	if e.Code == api.SessionExpired {
		c.session.end(EndedByCell, brief(e))
		return
	}
	if ctx.Err() != nil {
		return
	}
	c.cfg.Logger.InfoContext(ctx, "a KeepAlive failed", "session", c.session.id, "address", t.address, "error", e)
	if judge(e) == follow && p.last == 0 && c.finder.follow(t, e.Master) {
		p.next() // the next time, not without a pause
		return
	}
	c.finder.drop(t)
	p.wait(ctx)
}

// hear deals with the events of a reply, those after the last one heard. It
// returns the new last one, and the locks that were lost.
func (c *Client) hear(ctx context.Context, heard uint64, events []*chubbypb.Event) (uint64, []*Lock) {
	var lost []*Lock
	for _, e := range events {
		if e.GetSequence() <= heard {
			continue
		}
		if e.GetSequence() != heard+1 {
			c.cfg.Logger.ErrorContext(ctx, "events are missing", "session", c.session.id, "after", heard, "next", e.GetSequence())
			c.suspect()
		}
		heard = e.GetSequence()
		if l := c.event(e); l != nil {
			lost = append(lost, l)
		}
	}
	return heard, lost
}

// event deals with one event (Chubby §2.5). It returns the lock that it takes
// away, if that was held.
func (c *Client) event(e *chubbypb.Event) *Lock {
	switch kind := api.EventKind(e.GetKind()); kind {
	case api.EventMasterFailedOver, api.EventLost:
		c.suspect()
	case api.EventLockLost, api.EventHandleInvalid:
		if h := c.handles.get(api.HandleID(e.GetHandle())); h != nil {
			return h.told(kind, api.Generation(e.GetGeneration()), api.EndReason(e.GetReason()), e.GetExplanation())
		}
	}
	return nil
}

// letGo waits until the locks that were taken away are let go by those who
// used them, for at most half of the lease that is left. The next KeepAlive
// acknowledges their loss, and only then does the cell give them to others: so
// work that stops within that time is over before another's begins.
func (c *Client) letGo(ctx context.Context, lost []*Lock) {
	if len(lost) == 0 {
		return
	}
	timer := time.NewTimer(max(c.Left(), 0) / 2)
	defer timer.Stop()
	for _, l := range lost {
		select {
		case <-l.let:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// suspect has the held locks looked after, because events about them may have
// been lost.
func (c *Client) suspect() {
	select {
	case c.audit <- struct{}{}:
	default:
	}
}

// auditor asks the master about each held lock whenever events may have been
// lost (Chubby §2.5: after a fail-over, look again). The question also presents
// the handle to a new master (Chubby §2.9, step 8).
func (c *Client) auditor(ctx context.Context) {
	for {
		select {
		case <-c.audit:
		case <-ctx.Done():
			return
		}
		for _, l := range c.session.held() {
			err := c.read(ctx, "check the lock", l.handle.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
				reply, err := t.chubby.GetSequencer(ctx, &chubbypb.GetSequencerRequest{Caller: caller, Handle: l.handle.token})
				if err != nil {
					return err
				}
				if now, err := sequencer.Parse(reply.GetSequencer()); err != nil || now.Generation != l.seq.Generation {
					return api.Errorf(api.LockLost, "the handle holds %q now", reply.GetSequencer())
				}
				return nil
			})
			var e *api.Error
			if errors.As(err, &e) && tellsLoss(e.Code) {
				l.lose(brief(e))
			}
		}
	}
}

// tellsLoss reports whether a refusal to show a lock's sequencer means that the
// lock is not held.
func tellsLoss(c api.Code) bool {
	switch c {
	case api.LockLost, api.NotHeld, api.HandleClosed, api.BadHandle, api.BadSequencer, api.NotFound:
		return true
	}
	return false
}
