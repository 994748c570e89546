package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// patience is how long to wait for the answer to a KeepAlive: until the lease is
// due to be extended, for so long it is parked, and then a sixth of the lease. A
// quarter is then left to find another master, if this one hangs. left is what is
// left of the lease; if that is nothing, or the KeepAlive extends nothing, it is as
// long as it would be at most.
func keepAliveTimeout(lease, left time.Duration) time.Duration {
	lease = max(lease, api.MinLease) // should a master ever promise less
	parked := session.Due(lease)
	if left > 0 {
		parked = min(parked, max(left-(lease-parked), 0))
	}
	return parked + lease/6
}

// keeper keeps the session alive: one KeepAlive is in flight at any time (Chubby
// §2.8). It is one goroutine, which outlives the session when the cell ends
// that: see farewell.
type keeper struct {
	client     *Client
	cfg        Config
	session    *sessionState
	locator    *locator
	dispatcher *dispatcher
	pool       *pool
	base       context.Context //nolint:containedctx // of the goroutine: ended by Close, when it has waited long enough
	leave      context.CancelFunc
	done       chan struct{} // closed when the goroutine is through

	epoch  api.Epoch // of the newest reply
	inbox  inbox     // of that epoch
	ending uint64    // sequence of the event that says that the session has ended; 0 if none was heard in this epoch
	pause  retryPause
	empty  bool // the newest reply brought nothing
	buried bool // the master knows the session no more: there is nothing left to say
}

func newKeeper(ctx context.Context, c *Client) *keeper {
	k := &keeper{
		client:     c,
		cfg:        c.cfg,
		session:    c.session,
		locator:    c.cell.locator,
		dispatcher: c.cell.dispatcher,
		pool:       c.cell.pool,
		epoch:      c.Epoch(),
		done:       make(chan struct{}),
	}
	k.base, k.leave = context.WithCancel(context.WithoutCancel(ctx))
	return k
}

// run keeps the session alive until it is over.
func (k *keeper) run() {
	defer close(k.done)
	for over := k.session.ended; over.Err() == nil; {
		t, err := k.locator.locate(over)
		if err != nil {
			k.cfg.Logger.WarnContext(over, "no master to keep the session alive", "session", k.session.id, "error", err)
			k.pause.wait(over)
			continue
		}
		sent, newest := k.cfg.Clock(), k.session.newestGrant()
		left := k.client.Left()
		if k.inbox.held() != nil {
			left = 0 // it extends nothing, and is parked all the same
		}
		reply, e, let := k.send(t, newest, keepAliveTimeout(k.client.Lease(), left))
		if e != nil {
			if !let {
				k.missed(over, t, e)
			}
			continue
		}
		w := k.session.applyGrant(sent, grantOf(reply.GetEpoch(), reply.GetGrant()))
		if w == grantStale && !k.endedByCell() {
			k.locator.forgetMaster(t)
			k.pause.wait(over)
			continue
		}
		fresh := k.hear(t, reply)
		switch {
		case w != grantIgnored || fresh:
			k.pause, k.empty = retryPause{}, false
		case k.empty:
			k.pause.wait(over) // or it might go on like this
		default:
			k.empty = true // the master wants a sign of life before it extends the lease: the next, at once
		}
	}
	k.farewell()
}

// endedByCell reports whether the session is over by the word of the master. A
// call may have heard it first; what is to be acknowledged stands in the reply to
// a KeepAlive.
func (k *keeper) endedByCell() bool {
	return errors.Is(context.Cause(k.session.ended), EndedByCell)
}

// send sends one KeepAlive and waits for the answer. If the owner of a lost lock
// lets go meanwhile, it is given up, so that the next can say so: let reports
// that.
func (k *keeper) send(t *target, newest uint64, patience time.Duration) (reply *chubbypb.KeepAliveReply, e *api.Error, let bool) {
	ctx, cancel := context.WithTimeout(k.base, patience)
	defer cancel()
	if k.session.ended.Err() == nil {
		defer context.AfterFunc(k.session.ended, cancel)()
	}
	acknowledged, received, held := k.inbox.acknowledged(), k.inbox.seen, k.inbox.held()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if held != nil {
		watching.Go(func() {
			select {
			case <-held:
				cancel()
			case <-ctx.Done():
			}
		})
	}
	k.session.counters.keepAlives.Add(1)
	over, late := t.control(), k.client.Lease()/12
	doubt := time.AfterFunc(patience-late, func() { k.pool.checkConnection(t, over, late) })
	defer doubt.Stop()
	e, _ = k.dispatcher.attemptOnce(ctx, call{noTimeout: true, attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) (err error) {
		reply, err = over.chubby.KeepAlive(ctx, &chubbypb.KeepAliveRequest{
			Caller:       &chubbypb.Caller{Session: k.session.token, Epoch: uint64(k.epoch)},
			Acknowledged: acknowledged, Received: received, Grant: newest,
		})
		return err
	}}, t, nil)
	if e == nil || held == nil {
		return reply, e, false
	}
	select {
	case <-held:
		new(retryPause).wait(k.base) // as in missed
		return nil, e, true
	default:
		return nil, e, false
	}
}

// missed deals with a KeepAlive that was not answered, or refused. Only the
// master's word that it is over ends a session before its time; about any other
// error another master may think differently.
func (k *keeper) missed(ctx context.Context, t *target, e *api.Error) {
	if ctx.Err() == nil {
		k.session.counters.keepAlivesFailed.Add(1)
	}
	if e.Code == api.SessionExpired {
		k.buried = true
		k.session.endSession(EndedByCell, sessionUnknownText)
		return
	}
	if ctx.Err() != nil {
		k.pause.wait(k.base) // the master may not have heard yet that this one was given up: another would be the second in flight
		return
	}
	k.cfg.Logger.InfoContext(ctx, "a KeepAlive failed", "session", k.session.id, "address", t.address, "error", e)
	if verdictOf(e) == verdictFollow && k.pause.last == 0 && k.locator.redirect(t, e.Master) {
		k.pause.next() // the next time, not without a pause
		return
	}
	k.locator.forgetMaster(t)
	k.pause.wait(ctx)
}

// hear deals with the events of a reply. Those of an earlier epoch than has been
// heard of, and those heard already, say nothing. It reports whether there was
// any that said something.
func (k *keeper) hear(t *target, reply *chubbypb.KeepAliveReply) (fresh bool) {
	epoch := api.Epoch(reply.GetEpoch())
	switch {
	case epoch < k.epoch:
		return false
	case epoch > k.epoch:
		k.epoch, k.inbox, k.ending = epoch, inbox{}, 0
		k.locator.noteEpoch(epoch)
		k.session.counters.failOvers.Add(1)
		k.client.closeIdleHandles(k.client.cache.flush(epoch)) // before this is acknowledged: until then the master makes no change
		k.cfg.Logger.InfoContext(k.base, "another master is in office", "session", k.session.id, "epoch", epoch, "address", t.address)
		k.client.auditor.suspect()
	}
	for _, e := range reply.GetEvents() {
		before := k.inbox.seen
		news, gap := k.inbox.news(e)
		if !news {
			continue
		}
		fresh = true
		if gap {
			k.cfg.Logger.ErrorContext(k.base, "events are missing", "session", k.session.id, "after", before, "next", e.GetSequence())
			k.lose(before, "events are missing; look again")
		}
		k.event(e)
	}
	return fresh
}

// event deals with one event (Chubby §2.5).
func (k *keeper) event(e *chubbypb.Event) {
	switch kind := api.EventKind(e.GetKind()); kind {
	case api.EventMasterFailedOver:
		k.client.auditor.suspect() // and the application is told when its handle has been presented
	case api.EventLost:
		k.lose(e.GetSequence()-1, e.GetExplanation())
	case api.EventSessionEnded:
		k.ending = e.GetSequence()
		k.session.endSession(EndedByCell, cmp.Or(e.GetExplanation(), "somebody else ended it"))
		k.inbox.await(k.client.handles.unreleasedLocks()...)
	case api.EventLockLost, api.EventHandleInvalid:
		h := k.client.handles.get(api.HandleID(e.GetHandle()))
		if h == nil {
			return
		}
		l := h.noteTakenAway(kind, api.Generation(e.GetGeneration()), api.EndReason(e.GetReason()), e.GetExplanation())
		if l != nil && kind == api.EventLockLost { // a node that is gone, and its lock, are kept for nobody
			k.inbox.await(l)
		}
	case api.EventCacheInvalidation:
		k.client.invalidatePath(e.GetPath())
	default:
		if !kind.Subscribable() {
			k.misunderstand(e)
		} else if h := k.client.handles.get(api.HandleID(e.GetHandle())); h != nil {
			h.deliverEvent(k.epoch, eventOf(e))
		}
	}
}

// misunderstand deals with an event of a kind that this version does not know, as a
// newer master may send. It may say anything, so it counts as one that is missing: to
// acknowledge it would say that what it takes away is not used any more.
func (k *keeper) misunderstand(e *chubbypb.Event) {
	k.cfg.Logger.WarnContext(k.base, "an event of an unknown kind", "session", k.session.id, "kind", e.GetKind(), "explanation", e.GetExplanation())
	k.lose(e.GetSequence()-1, "the master told of something that this version does not know; look again")
}

// lose tells every handle that events after that sequence are missing. One of
// them may have taken a lock away.
func (k *keeper) lose(after uint64, explanation string) {
	k.client.closeIdleHandles(k.client.cache.flush(k.epoch))
	for _, h := range k.client.handles.all() {
		h.pushEvent(api.Event{Kind: api.EventLost, Explanation: explanation})
	}
	one := k.client.auditor.suspect()
	if len(k.client.handles.unreleasedLocks()) > 0 {
		k.inbox.doubt(after, one, k.client.handles.endedUnreleasedLocks)
	}
}

// farewell has the last word after the cell has ended the session. The
// application has been told: its locks' contexts have ended, and nothing is
// called any more. Only the acknowledgement is left, which frees what the
// session held: it is sent when every lock has been let go by its owner, or not
// at all, if the lease is over before. Until then the master hears that what was
// cached is dropped.
func (k *keeper) farewell() {
	if !k.endedByCell() {
		return
	}
	for !k.buried && k.base.Err() == nil && k.client.Left() > 0 {
		if !k.lastKeepAlive() {
			k.pause.wait(k.base)
		}
	}
}

// lastKeepAlive acknowledges what was heard. It reports whether the next, if
// there is to be one, has news to send.
func (k *keeper) lastKeepAlive() bool {
	ctx, cancel := context.WithTimeout(k.base, k.client.Left())
	defer cancel()
	t, err := k.locator.locate(ctx)
	if err != nil {
		k.buried = errors.Is(err, Closed) // there will be no master any more
		return false
	}
	ended, held := k.ending, k.inbox.held() != nil
	wait := k.cfg.CallTimeout
	if held {
		wait = keepAliveTimeout(k.client.Lease(), 0)
	}
	reply, e, let := k.send(t, k.session.newestGrant(), min(wait, k.client.Left()))
	if let {
		return true
	}
	if e != nil {
		k.missed(k.base, t, e)
		return true // it has paused
	}
	if ended != 0 && !held && api.Epoch(reply.GetEpoch()) == k.epoch {
		k.buried = true // the master has the acknowledgement
		return true
	}
	seen, epoch := k.inbox.seen, k.epoch
	k.hear(t, reply)
	return k.inbox.seen > seen || k.epoch > epoch
}
