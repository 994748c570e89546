package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// keepAliveTimeout returns how long to wait for the answer to a KeepAlive: until the master should extend the
// lease, and a sixth of the lease. If the master hangs, a quarter of the lease is then left to find another.
// left is the rest of the lease; if it is not positive, or the KeepAlive extends nothing, the result is the
// longest.
func keepAliveTimeout(lease, left time.Duration) time.Duration {
	lease = max(lease, api.MinLease) // should a master ever promise less
	parked := session.Due(lease)
	if left > 0 {
		parked = min(parked, max(left-(lease-parked), 0))
	}
	return parked + lease/6
}

// keeper keeps the session alive, with one KeepAlive pending at any time (Chubby §2.8). It has one goroutine,
// which owns the fields without a mutex, and outlives a session ended by the cell: see acknowledgeEnd.
type keeper struct {
	client *Client
	life   context.Context //nolint:containedctx // of the goroutine: ended by Close, once that has waited long enough
	stop   context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	epoch        api.Epoch // of the newest reply
	inbox        inbox     // of that epoch
	endSequence  uint64    // of this epoch's EventSessionEnded, or 0
	pause        retryPause
	lastWasEmpty bool        // the newest reply was empty
	single       *connection // to an earlier release's master, with one reply to each KeepAlive
	finished     bool        // the master does not know the session: KeepAlives are useless
}

func newKeeper(ctx context.Context, c *Client) *keeper {
	k := &keeper{client: c, epoch: c.Epoch(), done: make(chan struct{})}
	k.life, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	return k
}

// keepAlive sends one KeepAlive after the other until the session is gone, and acknowledges an end by the
// cell.
func (k *keeper) keepAlive() {
	defer close(k.done)
	for ended := k.client.session.ended; ended.Err() == nil; {
		t, err := k.client.cell.locator.locate(ended, nil)
		if err != nil {
			k.client.cfg.Logger.WarnContext(ended, "no master to keep the session alive", "session", k.client.session.id, "error", err)
			k.pause.wait(ended)
			continue
		}
		sent, newest := k.client.cfg.Clock(), k.client.session.newestGrant()
		left := k.client.Left()
		if k.inbox.firstHold() != nil {
			left = 0 // this KeepAlive extends nothing, but is parked
		}
		reply, e, released := k.sendKeepAlive(t, newest, keepAliveTimeout(k.client.Lease(), left))
		if e != nil {
			if !released {
				k.handleFailure(ended, t, e)
			}
			continue
		}
		effect := k.client.session.applyGrant(sent, grantOf(reply.GetEpoch(), reply.GetGrant()))
		if effect == grantStale && !k.isEndedByCell() {
			k.client.cell.locator.forgetMaster(t)
			k.pause.wait(ended)
			continue
		}
		k.client.cell.locator.followServers(k.life, t, reply.GetServersVersion())
		fresh := k.handleReply(t, reply)
		switch {
		case effect != grantIgnored || fresh:
			k.pause, k.lastWasEmpty = retryPause{}, false
		case k.lastWasEmpty:
			k.pause.wait(ended) // pause, even if the master answers at once each time
		default:
			//mutant: k.pause.wait(ended); time.Sleep(k.client.Left()) //by TestSignsOfLife of ./cell
			k.lastWasEmpty = true // the master wants a sign of life before it extends the lease: send the next at once
		}
	}
	k.acknowledgeEnd()
}

// isEndedByCell reports whether the master ended the session. A call may learn it before the event, which
// must be acknowledged.
func (k *keeper) isEndedByCell() bool {
	return errors.Is(context.Cause(k.client.session.ended), EndedByCell)
}

// sendKeepAlive sends one KeepAlive and waits for the answer. If the owner of a lost lock releases it
// meanwhile, it abandons the KeepAlive, so that the next can acknowledge the loss; released says so.
func (k *keeper) sendKeepAlive(t *target, newest uint64, timeout time.Duration) (reply *chubbypb.KeepAliveReply, e *api.Error, released bool) {
	ctx, cancel := context.WithTimeout(k.life, timeout)
	defer cancel()
	if k.client.session.ended.Err() == nil {
		defer context.AfterFunc(k.client.session.ended, cancel)()
	}
	acknowledged, received, held := k.inbox.acknowledged(), k.inbox.seen, k.inbox.firstHold()
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
	k.client.session.counters.keepAlives.Add(1)
	conn, late := t.control(), k.client.Lease()/12
	lateTimer := time.AfterFunc(timeout-late, func() { t.checkConnection(conn, late) })
	defer lateTimer.Stop()
	e, _ = k.client.cell.dispatcher.attemptOnce(ctx, call{noTimeout: true, class: classUnlimited, attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) (err error) {
		reply, err = k.callKeepAlive(ctx, conn, &chubbypb.KeepAliveRequest{
			Caller:       &chubbypb.Caller{Session: k.client.session.token, Epoch: uint64(k.epoch)},
			Acknowledged: acknowledged, Received: received, Grant: newest,
		}, func(aside *chubbypb.KeepAliveReply) {
			if k.handleReply(t, aside) {
				k.lastWasEmpty = false
			}
		})
		return err
	}}, t, nil)
	if e == nil || held == nil {
		return reply, e, false
	}
	select {
	case <-held:
		new(retryPause).wait(k.life) // as in handleFailure
		return nil, e, true
	default:
		return nil, e, false
	}
}

// callKeepAlive sends a KeepAlive, passes on the master's interim messages, and returns the last reply.
func (k *keeper) callKeepAlive(ctx context.Context, conn *connection, request *chubbypb.KeepAliveRequest, aside func(*chubbypb.KeepAliveReply)) (*chubbypb.KeepAliveReply, error) {
	if k.single == conn {
		return conn.chubby.KeepAlive(ctx, request)
	}
	replies, err := conn.chubby.KeepAlives(ctx, request)
	for err == nil {
		var reply *chubbypb.KeepAliveReply
		switch reply, err = replies.Recv(); {
		case err != nil:
		case !reply.GetMore():
			return reply, nil
		default:
			aside(reply)
		}
	}
	switch {
	case status.Code(err) == codes.Unimplemented:
		k.single = conn
		return conn.chubby.KeepAlive(ctx, request)
	case errors.Is(err, io.EOF):
		return nil, status.Error(codes.Unavailable, "the master ended a KeepAlive without an answer")
	}
	return nil, err
}

// handleFailure handles a refused or unanswered KeepAlive. Only the master's word ends the session early;
// another master may differ after other errors.
func (k *keeper) handleFailure(ctx context.Context, t *target, e *api.Error) {
	if ctx.Err() == nil {
		k.client.session.counters.keepAlivesFailed.Add(1)
	}
	if e.Code == api.SessionExpired {
		k.finished = true
		k.client.session.endSession(EndedByCell, sessionUnknownText)
		return
	}
	if ctx.Err() != nil {
		k.pause.wait(k.life) // the master may not know of the abandoned KeepAlive yet: another would be the second pending one
		return
	}
	k.client.cfg.Logger.InfoContext(ctx, "a KeepAlive failed", "session", k.client.session.id, "address", t.address, "error", e)
	if verdictOf(e) == verdictFollow && k.pause.last == 0 && k.client.cell.locator.redirect(t, e.Master) {
		k.pause.next() // pause before following a second redirection in a row
		return
	}
	k.client.cell.locator.forgetMaster(t)
	k.pause.wait(ctx)
}

// handleReply handles the new events of a reply, and ignores those of an earlier epoch. It reports whether
// any were new.
func (k *keeper) handleReply(t *target, reply *chubbypb.KeepAliveReply) (fresh bool) {
	epoch := api.Epoch(reply.GetEpoch())
	switch {
	case epoch < k.epoch:
		return false
	case epoch > k.epoch:
		k.epoch, k.inbox, k.endSequence = epoch, inbox{}, 0
		k.client.cell.locator.noteEpoch(epoch)
		k.client.session.counters.failOvers.Add(1)
		//mutant: k.client.cache.mu.Lock(); k.client.cache.epoch = epoch; k.client.cache.mu.Unlock() //by TestCachesAreConsistent of ./cell
		k.client.cache.flush(epoch) // before the acknowledgement: until then the master makes no change
		k.client.cfg.Logger.InfoContext(k.life, "another master is in office", "session", k.client.session.id, "epoch", epoch, "address", t.address)
		k.client.handles.recallAll()
		k.client.auditor.requestAudit()
	}
	for _, e := range reply.GetEvents() {
		before := k.inbox.seen
		news, gap := k.inbox.noteSequence(e)
		if !news {
			continue
		}
		fresh = true
		if gap {
			k.client.cfg.Logger.ErrorContext(k.life, "events are missing", "session", k.client.session.id, "after", before, "next", e.GetSequence())
			k.handleMissingEvents(before, "events are missing; look again")
		}
		k.handleEvent(e)
	}
	k.inbox.awaitReturns(k.client.session.ended)
	return fresh
}

// handleEvent handles one event (Chubby §2.5).
func (k *keeper) handleEvent(e *chubbypb.Event) {
	switch kind := api.EventKind(e.GetKind()); kind {
	case api.EventMasterFailedOver:
		k.client.auditor.requestAudit() // the application gets the event after its handle was presented
	case api.EventLost:
		k.handleMissingEvents(e.GetSequence()-1, e.GetExplanation())
	case api.EventSessionEnded:
		k.endSequence = e.GetSequence()
		k.client.session.endSession(EndedByCell, cmp.Or(e.GetExplanation(), "somebody else ended it"))
		k.inbox.holdForLocks(k.client.handles.unreleasedLocks()...)
	case api.EventLockLost, api.EventHandleInvalid:
		h := k.client.handles.get(api.HandleID(e.GetHandle()))
		if h == nil {
			return
		}
		l := h.noteTakenAway(kind, api.Generation(e.GetGeneration()), api.EndReason(e.GetReason()), e.GetExplanation())
		if l != nil && kind == api.EventLockLost { // for a deleted node, no session waits for the lock
			k.inbox.holdForLocks(l)
		}
	case api.EventCacheInvalidation:
		//mutant: _ = k.client.cache.invalidate //by TestCachesAreConsistent of ./cell
		k.client.cache.invalidate(e.GetPath())
	default:
		if !kind.Subscribable() { // of a newer master; it may take anything away, so the acknowledgement waits for an audit
			k.client.cfg.Logger.WarnContext(k.life, "an event of an unknown kind", "session", k.client.session.id, "kind", e.GetKind(), "explanation", e.GetExplanation())
			//mutant: k.handleMissingEvents(e.GetSequence(), "the master told of something that this version does not know; look again")
			k.handleMissingEvents(e.GetSequence()-1, "the master told of something that this version does not know; look again")
		} else if h := k.client.handles.get(api.HandleID(e.GetHandle())); h != nil {
			if returned := h.deliverEvent(k.epoch, eventOf(e), e.GetRecall()); returned != nil {
				k.inbox.returns = append(k.inbox.returns, returned)
			}
		}
	}
}

// handleMissingEvents tells every handle that events after that sequence are missing. The locks are audited
// before the acknowledgement.
func (k *keeper) handleMissingEvents(after uint64, explanation string) {
	k.client.cache.flush(k.epoch)
	for _, h := range k.client.handles.all() {
		h.pushEvent(api.Event{Kind: api.EventLost, Explanation: explanation})
	}
	k.client.handles.recallAll()
	audited := k.client.auditor.requestAudit()
	if len(k.client.handles.unreleasedLocks()) > 0 {
		k.inbox.holdForAudit(after, audited, k.client.handles.endedUnreleasedLocks)
	}
}

// acknowledgeEnd sends the last KeepAlives of a session that the cell has ended. The contexts of its locks
// have ended, and no call is made. The acknowledgement frees the session's locks and files. It is sent when
// all owners have released their locks, or never, if the lease runs out before. Until then the KeepAlives
// tell the master that the client has dropped its cache.
func (k *keeper) acknowledgeEnd() {
	if !k.isEndedByCell() {
		return
	}
	for !k.finished && k.life.Err() == nil && k.client.Left() > 0 {
		if !k.sendLastKeepAlive() {
			k.pause.wait(k.life)
		}
	}
}

// sendLastKeepAlive acknowledges as much as possible. It returns false if the next KeepAlive should come
// after a pause.
func (k *keeper) sendLastKeepAlive() bool {
	ctx, cancel := context.WithTimeout(k.life, k.client.Left())
	defer cancel()
	t, err := k.client.cell.locator.locate(ctx, nil)
	if err != nil {
		k.finished = errors.Is(err, Closed) // the Cell was closed: no master will be found
		return false
	}
	ended, held := k.endSequence, k.inbox.firstHold() != nil
	wait := k.client.cfg.CallTimeout
	if held {
		wait = keepAliveTimeout(k.client.Lease(), 0)
	}
	reply, e, released := k.sendKeepAlive(t, k.client.session.newestGrant(), min(wait, k.client.Left()))
	if released {
		return true
	}
	if e != nil {
		k.handleFailure(k.life, t, e)
		return true // handleFailure has paused
	}
	if ended != 0 && !held && api.Epoch(reply.GetEpoch()) == k.epoch {
		k.finished = true // the master has the acknowledgement
		return true
	}
	seen, epoch := k.inbox.seen, k.epoch
	k.handleReply(t, reply)
	return k.inbox.seen > seen || k.epoch > epoch
}
