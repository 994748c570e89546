package client

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// What is cached may be used only while a cache lease runs (decision 23): so no change
// waits for a client that has gone for longer than for that lease, which is short. A
// lease is asked for when the cache could answer a call, and none runs; and before it
// ends, if the cache is used then. So a session whose cache answers nothing asks for none,
// and holds up nobody.
const (
	// renewBefore is how long before its end a lease is renewed by whoever uses it. A
	// cache that is always in use has it renewed every 1.6 s.
	renewBefore = api.CacheLease / 3
	// maxRenewWait is how long a call waits for a lease before it asks the cell itself.
	maxRenewWait = 500 * time.Millisecond
	// renewPause is how long none is asked for after an attempt that has brought none.
	renewPause = 250 * time.Millisecond
)

// cacheLease is the lease under which a cache is used. Only its end changes.
type cacheLease struct {
	required bool            // an older cell grants none, and waits for the lease of the session
	end      session.Instant // in the epoch of the cache
	wake     chan struct{}   // capacity 1: the renewer is to ask for a lease
	renewer  *cacheRenewer
}

// finding says what the cache has for a call.
type finding uint8

const (
	foundNothing finding = 0
	foundLapsed  finding = 1 // the answer, which may be used under a lease only, and none runs
	foundUsable  finding = 2
)

// use says whether what an entry has may be used at now, and counts that; mu is held.
func (c *cache) use(e *entry, now session.Instant) finding {
	//mutant: if c.lease.required && c.lease.end == 0 {
	if c.lease.required && now >= c.lease.end {
		return foundLapsed
	}
	c.used.MoveToFront(e.element)
	c.stats.Hits++
	if c.lease.required && c.lease.end.Sub(now) < renewBefore {
		c.wakeRenewer()
	}
	return foundUsable
}

// wakeRenewer has the renewer ask for a lease.
func (c *cache) wakeRenewer() {
	select {
	case c.lease.wake <- struct{}{}:
	default:
	}
}

// grantLease notes that a master of that epoch has granted a lease to that end. One of
// another epoch counts for nothing: the cache has been emptied since, or is about to be.
func (c *cache) grantLease(epoch api.Epoch, end session.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	//mutant: if epoch > 0 {
	if epoch == c.epoch {
		c.lease.end = max(c.lease.end, end)
	}
}

// isRenewed reports whether there is no need to renew the lease at now.
func (c *cache) isRenewed(now session.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lease.end.Sub(now) >= renewBefore
}

// fromCache calls look to answer a call from the cache, and reports whether it did. What is
// in the cache at a moment at which the leases run is true at that moment: so the clock is
// read first. If only the cache lease is missing, it asks for one.
func fromCache(ctx context.Context, c *Client, look func(now session.Instant) finding) bool {
	if !c.cache.enabled() || ctx.Err() != nil {
		return false
	}
	for asked := false; ; asked = true {
		now, safe := c.session.safeAt()
		if !safe {
			return false
		}
		was := look(now)
		if was != foundLapsed || asked || !c.cache.lease.renewer.await(ctx, now) {
			return was == foundUsable
		}
	}
}

// cacheRenewer asks the cell for cache leases.
type cacheRenewer struct {
	client *Client

	mu    sync.Mutex // guards what follows; no other mutex is taken while it is held
	over  chan struct{}
	pause session.Instant // until then nobody waits for a lease
}

func newCacheRenewer(c *Client) *cacheRenewer {
	return &cacheRenewer{client: c, over: make(chan struct{})}
}

// await has a lease asked for, and waits for the answer. It returns false if there is none
// to wait for, or it does not come soon.
func (r *cacheRenewer) await(ctx context.Context, now session.Instant) bool {
	r.mu.Lock()
	over, pause := r.over, r.pause
	r.mu.Unlock()
	if now < pause {
		return false
	}
	r.client.cache.wakeRenewer()
	late := time.NewTimer(maxRenewWait)
	defer late.Stop()
	select {
	case <-over:
		return true
	case <-late.C:
	case <-ctx.Done():
	case <-r.client.session.ended.Done():
	}
	return false
}

// renewCacheLeases renews the lease whenever it is woken, until the session is gone.
func (r *cacheRenewer) renewCacheLeases() {
	ended := r.client.session.ended
	for {
		select {
		case <-r.client.cache.lease.wake:
		case <-ended.Done():
			return
		}
		renewed := r.renewOnce(ended)
		now := r.client.cfg.Clock()
		r.mu.Lock()
		if !renewed {
			r.pause = now.Add(renewPause)
		}
		close(r.over)
		r.over = make(chan struct{})
		r.mu.Unlock()
		if renewed {
			continue
		}
		again := time.NewTimer(renewPause)
		select {
		case <-again.C:
		case <-ended.Done():
		}
		again.Stop()
	}
}

// renewOnce renews the lease, if that is due, and reports whether it runs for a while.
func (r *cacheRenewer) renewOnce(ctx context.Context) bool {
	c := r.client
	if c.cache.isRenewed(c.cfg.Clock()) {
		return true // meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, api.CacheLease)
	defer cancel()
	_, _ = c.cell.dispatcher.dispatch(ctx, call{op: "renew the cache lease", path: rootPath(c.cell.cfg), session: c.session, class: classRenewal,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			sent := c.cfg.Clock() // of this attempt: the lease counts from the attempt that is answered
			reply, err := t.control().chubby.RenewCache(ctx, &chubbypb.RenewCacheRequest{Caller: caller})
			if err == nil {
				//mutant: c.cache.grantLease(api.Epoch(caller.GetEpoch()), session.CacheLeaseEnd(max(sent, c.cfg.Clock()), time.Duration(reply.GetLeaseNs())))
				c.cache.grantLease(api.Epoch(caller.GetEpoch()), session.CacheLeaseEnd(sent, time.Duration(reply.GetLeaseNs())))
			}
			return err
		}}) // what cannot be answered from the cache is asked for
	return c.cache.isRenewed(c.cfg.Clock())
}
