package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// maxConcurrentAudits limits concurrent audits of a session: enough for thousands of handles in a second or
// two, and few beside the application's calls.
const maxConcurrentAudits = 4

// auditor asks the master about held locks whenever events may have been lost, and presents handles to a new
// master.
type auditor struct {
	client *Client
	wake   chan struct{} // capacity 1: an audit was requested

	mu      sync.Mutex    // guards what follows; take no mutex under it
	next    chan struct{} // closed when the next audit has ended: it is requested and not begun, or nil
	stopped bool          // no further audit will begin
}

func newAuditor(c *Client) *auditor { return &auditor{client: c, wake: make(chan struct{}, 1)} }

// requestAudit returns what is closed when the questions of an audit are answered, or when the session and its
// locks have ended.
func (a *auditor) requestAudit() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	if a.next == nil {
		a.next = make(chan struct{})
		a.wake <- struct{}{} // never blocks: runAudits takes from wake before it takes next
	}
	return a.next
}

func (a *auditor) takeNext() chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.next
	a.next = nil
	return one
}

func (a *auditor) endAudits() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.next != nil {
		close(a.next)
	}
}

func (a *auditor) runAudits(ctx context.Context) {
	//mutant: /* nothing */
	defer a.endAudits()
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		one := a.takeNext()
		a.auditAll(ctx)
		close(one)
	}
}

func (a *auditor) auditAll(ctx context.Context) {
	slots := make(chan struct{}, maxConcurrentAudits)
	var all sync.WaitGroup
	defer all.Wait()
	for _, h := range a.client.handles.all() {
		l, unknown := h.auditNeeds(a.client.Epoch())
		if l == nil && !unknown {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			if l != nil {
				a.auditLock(ctx, l)
			}
			if unknown {
				a.presentHandle(ctx, h)
			}
		})
	}
}

// auditNeeds returns the lock to ask about, or nil, and whether the handle must be presented to the master of
// that epoch.
func (h *Handle) auditNeeds(epoch api.Epoch) (l *Lock, unknown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.token == nil || h.closed {
		return nil, false
	}
	held := h.lock.owned
	if held != nil && held.ctx.Err() == nil {
		l = held
	}
	return l, h.unusable == nil && h.knownInEpoch < epoch && (h.openedFor.watches || held != nil)
}

func (a *auditor) auditLock(ctx context.Context, l *Lock) {
	err := a.client.read(ctx, classAudit, "check the lock", l.handle.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		//mutant: reply, err := t.control().chubby.GetSequencer(ctx, &chubbypb.GetSequencerRequest{Caller: caller, Handle: l.handle.currentToken()})
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
	if errors.As(err, &e) && impliesLockLost(e.Code) {
		l.noteAuditedLoss(brief(e))
	}
}

// noteAuditedLoss records that the cell does not know a lock. If the lock was kept, the next use of the grant
// has lost it, too.
func (l *Lock) noteAuditedLoss(explanation string) {
	h := l.handle
	h.mu.Lock()
	defer h.mu.Unlock()
	k := &h.lock
	//mutant: if k.owned == l {
	if k.owned != nil && k.owned.firstUse == l.firstUse {
		l = k.owned
	}
	if k.idle != nil && k.idle.firstUse == l.firstUse {
		k.idle = nil
	}
	if l.markTaken(explanation) && h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: api.EventLockLost, Generation: l.seq.Generation, Explanation: explanation})
	}
}

func impliesLockLost(c api.Code) bool {
	return slices.Contains([]api.Code{api.LockLost, api.NotHeld, api.HandleClosed, api.BadHandle, api.NotFound}, c)
}

// presentHandle presents a handle to a new master (Chubby §2.9, step 8). Then it queues
// EventMasterFailedOver: events come again, and a program that looks now sees earlier changes.
func (a *auditor) presentHandle(ctx context.Context, h *Handle) {
	var epoch api.Epoch
	err := a.client.read(ctx, classAudit, "present the handle", h.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
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
		a.client.cfg.Logger.WarnContext(ctx, "a handle could not be presented to the new master, so its events may not come", "path", h.path, "session", a.client.session.id, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.knownInEpoch = max(h.knownInEpoch, epoch)
	if h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: api.EventMasterFailedOver, Explanation: "another master is in office; events may have been missed, look again"})
		if h.queue.conflict != nil {
			h.enqueueEvent(*h.queue.conflict)
		}
	}
	h.queue.conflict = nil
}
