package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// patience is how long to wait for the answer to a KeepAlive: the time it is
// parked, and then a sixth of the lease. A quarter is then left to find another
// master, if this one hangs.
func patience(lease time.Duration) time.Duration {
	lease = max(lease, api.MinLease) // should a master ever promise less
	return session.Due(lease) + lease/6
}

// heldPause is the least time between KeepAlives that are answered at once and
// extend nothing, because an acknowledgement is held back.
const heldPause = time.Second

// keeper keeps the session alive: one KeepAlive is in flight at any time (Chubby
// §2.8). It is one goroutine, which outlives the session when the cell ends
// that: see farewell.
type keeper struct {
	*Client
	base  context.Context //nolint:containedctx // of the goroutine: ended by Close, when it has waited long enough
	leave context.CancelFunc
	done  chan struct{} // closed when the goroutine is through

	epoch   api.Epoch       // of the newest reply
	inbox   inbox           // of that epoch
	sent    uint64          // what the newest KeepAlive of that epoch that was answered had acknowledged
	last    session.Instant // when the newest KeepAlive was sent
	ending  uint64          // sequence of the event that says that the session has ended; 0 if none was heard in this epoch
	pause   pause
	buried  bool // the master knows the session no more: there is nothing left to say
	hurried bool // somebody heard of another master
}

func newKeeper(ctx context.Context, c *Client) *keeper {
	k := &keeper{Client: c, epoch: c.Epoch(), done: make(chan struct{})}
	k.base, k.leave = context.WithCancel(context.WithoutCancel(ctx))
	return k
}

// run keeps the session alive until it is over.
func (k *keeper) run() {
	defer close(k.done)
	for over := k.session.over; over.Err() == nil; {
		if k.holdBack(over); over.Err() != nil {
			break
		}
		t, err := k.finder.find(over)
		if err != nil {
			k.cfg.Logger.WarnContext(over, "no master to keep the session alive", "session", k.session.id, "error", err)
			k.pause.wait(over)
			continue
		}
		sent, newest := k.cfg.Clock(), k.session.newest()
		reply, e := k.send(t, newest, patience(k.Lease()))
		if e != nil {
			k.missed(over, t, e)
			continue
		}
		switch w := k.session.extend(sent, grantOf(reply.GetEpoch(), reply.GetGrant())); {
		case w == past && !k.endedByCell():
			k.finder.drop(t)
			k.pause.wait(over)
			continue
		case w == nothing && len(reply.GetEvents()) == 0:
			k.pause.wait(over) // or it might go on like this
		default:
			k.pause = pause{}
		}
		k.hear(t, reply)
	}
	k.farewell()
}

// endedByCell reports whether the session is over by the word of the master. A
// call may have heard it first; what is to be acknowledged stands in the reply to
// a KeepAlive.
func (k *keeper) endedByCell() bool {
	return errors.Is(context.Cause(k.session.over), EndedByCell)
}

// send sends one KeepAlive and waits for the answer.
func (k *keeper) send(t *target, newest uint64, patience time.Duration) (*chubbypb.KeepAliveReply, *api.Error) {
	ctx, cancel := context.WithTimeout(k.base, patience)
	defer cancel()
	if k.session.over.Err() == nil {
		defer context.AfterFunc(k.session.over, cancel)()
	}
	select {
	case <-k.session.doubt: // this one finds out
	default:
	}
	acknowledged := k.inbox.acknowledged()
	k.last, k.hurried = k.cfg.Clock(), false
	k.session.counters.keepAlives.Add(1)
	var reply *chubbypb.KeepAliveReply
	e, _ := k.finder.attempt(ctx, call{open: true, attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) (err error) {
		reply, err = t.chubby.KeepAlive(ctx, &chubbypb.KeepAliveRequest{
			Caller:       &chubbypb.Caller{Session: k.session.token, Epoch: uint64(k.epoch)},
			Acknowledged: acknowledged, Grant: newest,
		})
		return err
	}}, t, nil)
	if e == nil {
		k.sent = acknowledged
	}
	return reply, e
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
		k.session.end(EndedByCell, brief(e))
		return
	}
	if ctx.Err() != nil {
		k.pause.wait(k.base) // the master may not have heard yet that this one was given up: another would be the second in flight
		return
	}
	k.cfg.Logger.InfoContext(ctx, "a KeepAlive failed", "session", k.session.id, "address", t.address, "error", e)
	if judge(e) == follow && k.pause.last == 0 && k.finder.follow(t, e.Master) {
		k.pause.next() // the next time, not without a pause
		return
	}
	k.finder.drop(t)
	k.pause.wait(ctx)
}

// hear deals with the events of a reply. Those of an earlier epoch than has been
// heard of, and those heard already, say nothing.
func (k *keeper) hear(t *target, reply *chubbypb.KeepAliveReply) {
	epoch := api.Epoch(reply.GetEpoch())
	switch {
	case epoch < k.epoch:
		return
	case epoch > k.epoch:
		k.epoch, k.inbox, k.sent, k.ending = epoch, inbox{}, 0, 0
		k.finder.learn(epoch)
		k.session.counters.failOvers.Add(1)
		k.retire(k.cache.flush(epoch)) // before this is acknowledged: until then the master makes no change
		k.cfg.Logger.InfoContext(k.base, "another master is in office", "session", k.session.id, "epoch", epoch, "address", t.address)
		k.auditor.suspect()
	}
	for _, e := range reply.GetEvents() {
		before := k.inbox.seen
		fresh, gap := k.inbox.news(e)
		if !fresh {
			continue
		}
		if gap {
			k.cfg.Logger.ErrorContext(k.base, "events are missing", "session", k.session.id, "after", before, "next", e.GetSequence())
			k.lose(before, "events are missing; look again")
		}
		k.event(e)
	}
}

// event deals with one event (Chubby §2.5).
func (k *keeper) event(e *chubbypb.Event) {
	switch kind := api.EventKind(e.GetKind()); kind {
	case api.EventMasterFailedOver:
		k.auditor.suspect() // and the application is told when its handle has been presented
	case api.EventLost:
		k.lose(e.GetSequence()-1, e.GetExplanation())
	case api.EventSessionEnded:
		k.ending = e.GetSequence()
		k.session.end(EndedByCell, cmp.Or(e.GetExplanation(), "somebody else ended it"))
		k.inbox.await(k.handles.locks()...)
	case api.EventLockLost, api.EventHandleInvalid:
		h := k.handles.get(api.HandleID(e.GetHandle()))
		if h == nil {
			return
		}
		l := h.told(kind, api.Generation(e.GetGeneration()), api.EndReason(e.GetReason()), e.GetExplanation())
		if l != nil && kind == api.EventLockLost { // a node that is gone, and its lock, are kept for nobody
			k.inbox.await(l)
		}
	case api.EventCacheInvalidation:
		k.invalidate(e.GetPath())
	case api.EventContentsModified, api.EventChildAdded, api.EventChildRemoved, api.EventChildModified,
		api.EventLockAcquired, api.EventLockVacant, api.EventConflictingLock:
		if h := k.handles.get(api.HandleID(e.GetHandle())); h != nil {
			h.hear(k.epoch, eventOf(e))
		}
	}
}

// lose tells every handle that events after that sequence are missing. One of
// them may have taken a lock away.
func (k *keeper) lose(after uint64, explanation string) {
	k.retire(k.cache.flush(k.epoch))
	for _, h := range k.handles.all() {
		h.push(api.Event{Kind: api.EventLost, Explanation: explanation})
	}
	one := k.auditor.suspect()
	if len(k.handles.locks()) > 0 {
		k.inbox.doubt(after, one, k.handles.ended)
	}
}

// holdBack waits while an acknowledgement is held back and there is no other to
// send: the master would answer at once, and extend nothing. It waits until the
// owner has let go, and no longer than the lease runs; from then on, for a
// second after the last KeepAlive: the master ends the session when its lease is
// over.
func (k *keeper) holdBack(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		over := k.inbox.held()
		if over == nil || k.inbox.acknowledged() > k.sent {
			return
		}
		wait := k.Left()
		if wait <= 0 || k.hurried {
			if wait = k.last.Add(heldPause).Sub(k.cfg.Clock()); wait <= 0 {
				return
			}
		}
		timer.Reset(min(wait, tickIdle)) // timers may be late, and the clock is not
		select {
		case <-over:
		case <-timer.C:
		case <-k.session.doubt:
			k.hurried = true
		case <-ctx.Done():
			return
		}
	}
}

// farewell has the last word after the cell has ended the session. The
// application has been told: its locks' contexts have ended, and nothing is
// called any more. Only the acknowledgement is left, which frees what the
// session held: it is sent when every lock has been let go by its owner, or not
// at all, if the lease is over before.
func (k *keeper) farewell() {
	if !k.endedByCell() {
		return
	}
	for !k.buried && k.base.Err() == nil && k.Left() > 0 {
		if over := k.inbox.held(); over != nil {
			timer := time.NewTimer(min(k.Left(), tickIdle))
			select {
			case <-over:
			case <-timer.C:
			case <-k.base.Done():
			}
			timer.Stop()
			continue
		}
		if !k.lastKeepAlive() {
			k.pause.wait(k.base)
		}
	}
}

// lastKeepAlive acknowledges what was heard. It reports whether the next, if
// there is to be one, has news to send.
func (k *keeper) lastKeepAlive() bool {
	ctx, cancel := context.WithTimeout(k.base, k.Left())
	defer cancel()
	t, err := k.finder.find(ctx)
	if err != nil {
		k.buried = errors.Is(err, Closed) // there will be no master any more
		return false
	}
	ended := k.ending
	reply, e := k.send(t, k.session.newest(), min(k.cfg.CallTimeout, k.Left()))
	if e != nil {
		k.missed(k.base, t, e)
		return true // it has paused
	}
	if ended != 0 && api.Epoch(reply.GetEpoch()) == k.epoch {
		k.buried = true // the master has the acknowledgement
		return true
	}
	seen, epoch := k.inbox.seen, k.epoch
	k.hear(t, reply)
	return k.inbox.seen > seen || k.epoch > epoch
}
