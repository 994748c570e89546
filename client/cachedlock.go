package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// maxIdleLock is how long an unused lock is kept. If the client dies, others wait for its lease and the
// lock-delay.
const maxIdleLock = 5 * time.Second

// maxReturn limits how long the acknowledgement of a recall, and the receipt of other events, waits for the
// return of the lock.
const maxReturn = 100 * time.Millisecond

// handleLock is what a handle knows of its lock. Handle.mu guards it.
//
// With OpenOptions.CacheLock it keeps the lock from a Release to the next Acquire, without a call (Chubby §2.7:
// "clients may cache locks", with the conflicting-lock event to recall them). For the cell the lock is held, with
// the same leases, revocation and lock-delay.
//
// While a lock is kept, owned is nil. The client acknowledges its loss at once, as no work runs under it. So no
// Acquire may use it afterwards: the loss clears idle under the same hold of Handle.mu. No lock is kept where its
// loss or recall may have been missed: after a fail-over and missing events (recallAll), and after jeopardy.
type handleLock struct {
	requested      bool           // Acquire or TryAcquire was called
	owned          *Lock          // held, or lost and not yet released; or nil
	lostGeneration api.Generation // no lock of this or a lower generation is held any more: the last lost one
	lostReason     string

	idle       *Lock // the kept lock, as its owner released it, or nil
	idleSince  session.Instant
	jeopardies uint64          // of the session when the lock became idle
	recalled   api.Generation  // another wants the lock of this or a lower generation: release it instead of keeping it
	recallAlls uint64          // calls of recallAll
	returned   <-chan struct{} // closed when the last returned lock is free, or nil
	timerRuns  bool            // returnIdle will be called
}

// keep keeps a just released lock of the handle, if possible, and reports whether it does.
func (k *handleLock) keep(l *Lock) bool {
	h := l.handle
	if !h.openedFor.cacheLock {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if k.owned != l || h.unusable != nil || h.boundToken != nil || l.seq.Generation <= max(k.recalled, k.lostGeneration) {
		return false
	}
	jeopardies := h.client.session.counters.jeopardies.Load() // first: a jeopardy that begins now is not counted
	now, _, safe := h.client.session.readClock()
	if !safe {
		return false
	}
	k.owned, k.idle, k.idleSince, k.jeopardies = nil, l, now, jeopardies
	if !k.timerRuns {
		k.timerRuns = true
		time.AfterFunc(maxIdleLock, func() { k.returnIdle(h) })
	}
	return true
}

// take returns the kept lock for another use, or nil. It gives back a lock kept for another mode or reason.
func (k *handleLock) take(ctx context.Context, a *acquireCall) *Lock {
	h := a.handle
	if !h.openedFor.cacheLock || ctx.Err() != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was := k.idle
	if was == nil || h.unusable != nil {
		return nil
	}
	l := newLock(h, was.terms, was.seq)
	if was.terms.mode != a.mode || was.terms.reason != a.options.reason || a.options.owner != "" || h.boundToken != nil || !k.track(l) {
		l.cancel(nil) // else it stays until the session ends
		k.giveBack(h)
		return nil
	}
	l.firstUse = was.firstUse
	k.owned, k.idle = l, nil
	return l
}

// track is trackLock for another use of a kept lock, without a wait. It reports whether the lock is reliable;
// Handle.mu is held.
func (k *handleLock) track(l *Lock) bool {
	s := l.handle.client.session
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock() // once: it is a fifth of what a kept lock costs
	state := s.refresh(now)
	return s.counters.jeopardies.Load() == k.jeopardies && s.trackIfSafe(l, state, now)
}

// giveBack has the janitor release the kept lock; Handle.mu is held. Later requests wait for that.
func (k *handleLock) giveBack(h *Handle) {
	c, send := h.client, releaseSender(h.currentTokenLocked(), k.idle.seq.Generation, false)
	k.idle = nil
	returned := make(chan struct{})
	k.returned = returned
	c.janitor.add(func(ctx context.Context) {
		defer close(returned)
		c.giveBack(ctx, "release", h.path, send)
	})
}

func (k *handleLock) returnIdle(h *Handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k.timerRuns = false
	if k.idle == nil || h.client.session.ended.Err() != nil {
		return
	}
	if idle := h.client.session.clock().Sub(k.idleSince); idle < maxIdleLock {
		k.timerRuns = true
		time.AfterFunc(maxIdleLock-idle, func() { k.returnIdle(h) })
		return
	}
	k.giveBack(h)
}

// recall returns the lock of that or a lower generation: now if it is idle, else when its owner releases it;
// Handle.mu is held.
func (k *handleLock) recall(h *Handle, generation api.Generation) {
	k.recalled = max(k.recalled, generation)
	if k.idle != nil && k.idle.seq.Generation <= k.recalled {
		k.giveBack(h)
	}
}

// recallAll recalls all locks that are or may be kept, because a missed event may recall one or take one
// away. The keeper calls it before it acknowledges later events. setLock recalls locks granted unseen by
// then.
func (t *handleTable) recallAll() {
	for _, h := range t.all() {
		h.mu.Lock()
		h.lock.recallAlls++
		for _, l := range []*Lock{h.lock.owned, h.lock.idle} {
			if l != nil {
				h.lock.recall(h, l.seq.Generation)
			}
		}
		h.mu.Unlock()
	}
}

// Cached data is usable only under a cache lease (decision 23), which is short, so that changes wait briefly
// for an absent client. The client asks for a lease when the cache could answer a call, and before the end if
// in use. An unused cache asks for none, and delays no writer.
const (
	// renewBefore is how long before its end a used lease is renewed. A cache in constant use renews it every
	// 1.6 s.
	renewBefore = api.CacheLease / 3
	// maxRenewWait limits how long a call waits for a lease before it asks the cell itself.
	maxRenewWait = 500 * time.Millisecond
	// renewPause is the pause after an attempt without a lease.
	renewPause = 250 * time.Millisecond
)

// grantLease records a lease until end from a master of that epoch. It ignores other epochs: the cache has
// been emptied since, or is about to be.
func (c *cache) grantLease(epoch api.Epoch, end session.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	//mutant: if epoch > 0 {
	if epoch == c.epoch {
		c.lease.end = max(c.lease.end, end)
	}
}

func (c *cache) isRenewed(now session.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lease.end.Sub(now) >= renewBefore
}

// fromCache calls look to answer a call from the cache, and reports whether it did. It reads the clock first:
// cached data is true while the leases run. If only the cache lease is missing, it asks for one.
func fromCache(ctx context.Context, c *Client, look func(now session.Instant) finding) bool {
	if !c.cache.enabled() || ctx.Err() != nil {
		return false
	}
	for asked := false; ; asked = true {
		now, _, safe := c.session.readClock()
		if !safe {
			return false
		}
		was := look(now)
		if was != foundLapsed || asked || !awaitCacheLease(ctx, c, now) {
			return was == foundUsable
		}
	}
}

// readCache returns an entry with a part of a node, as cache.read does.
func readCache(ctx context.Context, c *Client, name api.Name, instance api.Generation, what wanted) (kept entry, ok bool) {
	ok = fromCache(ctx, c, func(now session.Instant) (is finding) {
		kept, is = c.cache.read(now, name, instance, what)
		return is
	})
	return kept, ok
}

// awaitCacheLease requests a lease, and waits for it. It returns false without a pending request, or if the
// answer is late.
func awaitCacheLease(ctx context.Context, c *Client, now session.Instant) bool {
	c.cache.mu.Lock()
	asked, pause := c.cache.lease.asked, c.cache.lease.pause
	c.cache.mu.Unlock()
	if now < pause {
		return false
	}
	wakeUp(c.cache.lease.wake)
	select {
	case <-asked:
		return true
	case <-time.After(maxRenewWait):
	case <-ctx.Done():
	case <-c.session.ended.Done():
	}
	return false
}

func renewCacheLeases(c *Client) {
	ended, lease := c.session.ended, &c.cache.lease
	for {
		select {
		case <-lease.wake:
		case <-ended.Done():
			return
		}
		renewed := renewCacheLease(ended, c)
		now := c.cfg.Clock()
		c.cache.mu.Lock()
		if !renewed {
			lease.pause = now.Add(renewPause)
		}
		close(lease.asked)
		lease.asked = make(chan struct{})
		c.cache.mu.Unlock()
		if !renewed {
			sleep(ended, renewPause)
		}
	}
}

func renewCacheLease(ctx context.Context, c *Client) bool {
	if c.cache.isRenewed(c.cfg.Clock()) {
		return true // meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, api.CacheLease)
	defer cancel()
	_ = c.read(ctx, classRenewal, "renew the cache lease", rootPath(c.cell.cfg), func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		sent := c.cfg.Clock() // of this attempt: the lease counts from the answered attempt
		reply, err := t.control().chubby.RenewCache(ctx, &chubbypb.RenewCacheRequest{Caller: caller})
		if err == nil {
			//mutant: c.cache.grantLease(api.Epoch(caller.GetEpoch()), session.CacheLeaseEnd(max(sent, c.cfg.Clock()), time.Duration(reply.GetLeaseNs())))
			c.cache.grantLease(api.Epoch(caller.GetEpoch()), session.CacheLeaseEnd(sent, time.Duration(reply.GetLeaseNs())))
		}
		return err
	}) // calls that the cache cannot answer go to the cell
	return c.cache.isRenewed(c.cfg.Clock())
}
