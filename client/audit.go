package client

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// mostAudits is how many questions of an audit are under way at once: enough to
// be through thousands of handles in a second or two, and few beside the calls
// of applications, all of which come back after a fail-over.
const mostAudits = 4

// auditor asks the master about held locks whenever events may have been lost,
// and presents handles to a master that does not know them.
type auditor struct {
	wake chan struct{} // capacity 1: an audit is asked for

	mu   sync.Mutex // guards what follows
	next *audit     // asked for and not begun; nil when none is
	over bool       // there are no more audits
}

// audit is one audit; done is closed when everything was asked that could be
// asked when it began, or the session has ended, and with it every lock.
type audit struct{ done chan struct{} }

func newAuditor() *auditor { return &auditor{wake: make(chan struct{}, 1)} }

// suspect asks for an audit that begins after now.
func (a *auditor) suspect() *audit {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		none := &audit{done: make(chan struct{})}
		close(none.done)
		return none
	}
	if a.next == nil {
		a.next = &audit{done: make(chan struct{})}
		a.wake <- struct{}{} // there is room: whoever takes next has taken this first
	}
	return a.next
}

// begin takes the audit that was asked for.
func (a *auditor) begin() *audit {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.next
	a.next = nil
	return one
}

// end lets go those who wait for an audit that will not be.
func (a *auditor) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.next != nil {
		close(a.next.done)
	}
}

// runAudits makes audits until ctx, the session's, ends.
func (c *Client) runAudits(ctx context.Context) {
	defer c.auditor.end()
	for {
		select {
		case <-c.auditor.wake:
		case <-ctx.Done():
			return
		}
		one := c.auditor.begin()
		c.checkAll(ctx)
		close(one.done)
	}
}

// checkAll looks after every handle that has events or a lock, a few at a time.
func (c *Client) checkAll(ctx context.Context) {
	places := make(chan struct{}, mostAudits)
	var all sync.WaitGroup
	defer all.Wait()
	for _, h := range c.handles.all() {
		l, unknown := h.auditNeeds(c.Epoch())
		if l == nil && !unknown {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-places }()
			if l != nil {
				c.checkLock(ctx, l)
			}
			if unknown {
				c.present(ctx, h)
			}
		})
	}
}

// suspected returns the lock that is to be asked about, and whether the handle
// is to be presented to the master of that epoch.
func (h *Handle) auditNeeds(epoch api.Epoch) (l *Lock, unknown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.token == nil || h.closed {
		return nil, false
	}
	if h.lock != nil && h.lock.ctx.Err() == nil {
		l = h.lock
	}
	return l, h.unusable == nil && h.knownInEpoch < epoch && (h.watches || h.lock != nil)
}

// checkLock asks whether a lock is still held.
func (c *Client) checkLock(ctx context.Context, l *Lock) {
	err := c.readIn(ctx, classAudit, "check the lock", l.handle.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		reply, err := t.control().chubby.GetSequencer(ctx, &chubbypb.GetSequencerRequest{Caller: caller, Handle: l.handle.openToken()})
		if err != nil {
			return err
		}
		if now, err := sequencer.Parse(reply.GetSequencer()); err != nil || now.Generation != l.seq.Generation {
			return api.Errorf(api.LockLost, "the handle holds %q now", reply.GetSequencer())
		}
		return nil
	})
	var e *api.Error
	if errors.As(err, &e) && tellsLoss(e.Code) && l.markTaken(brief(e)) {
		l.handle.pushEvent(api.Event{Kind: api.EventLockLost, Generation: l.seq.Generation, Explanation: brief(e)})
	}
}

// tellsLoss reports whether a refusal to show a lock's sequencer means that the
// lock is not held.
func tellsLoss(c api.Code) bool {
	switch c {
	case api.LockLost, api.NotHeld, api.HandleClosed, api.BadHandle, api.NotFound:
		return true
	}
	return false
}

// present shows a handle to a new master, which knows of it only then (Chubby
// §2.9, step 8), and tells the application afterwards: from here on events come
// again, and what happened before can be seen.
func (c *Client) present(ctx context.Context, h *Handle) {
	var epoch api.Epoch
	err := c.readIn(ctx, classAudit, "present the handle", h.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		_, err := t.control().chubby.GetStat(ctx, &chubbypb.GetStatRequest{Caller: caller, Handle: h.openToken()})
		epoch = api.Epoch(caller.GetEpoch())
		return err
	})
	var e *api.Error
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return
	case errors.As(err, &e) && isAlreadyClosed(e.Code):
		h.noteTakenAway(api.EventHandleInvalid, 0, api.ByDeletion, brief(e))
		return
	default:
		c.cfg.Logger.WarnContext(ctx, "a handle could not be presented to the new master, so its events may not come", "path", h.path, "session", c.session.id, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.knownInEpoch = max(h.knownInEpoch, epoch)
	if h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: api.EventMasterFailedOver, Explanation: "another master is in office; events may have been missed, look again"})
		if h.pendingConflict != nil {
			h.enqueueEvent(*h.pendingConflict)
		}
	}
	h.pendingConflict = nil
}
