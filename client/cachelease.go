package client

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

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

// cacheLease is the lease under which a cache is used. Only its end changes.
type cacheLease struct {
	required bool            // false: an older cell grants none, and waits for the session's lease
	end      session.Instant // in the epoch of the cache
	wake     chan struct{}   // capacity 1: wakes the renewer
	renewer  *cacheRenewer
}

type finding uint8

const (
	foundNothing finding = 0
	foundLapsed  finding = 1 // an answer, but no lease to use it under
	foundUsable  finding = 2
)

// use says whether an entry is usable at now, and counts that; mu is held.
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

func (c *cache) wakeRenewer() {
	select {
	case c.lease.wake <- struct{}{}:
	default:
	}
}

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

type cacheRenewer struct {
	client *Client

	mu    sync.Mutex // guards what follows; take no mutex under it
	over  chan struct{}
	pause session.Instant // until then no call waits for a lease
}

func newCacheRenewer(c *Client) *cacheRenewer {
	return &cacheRenewer{client: c, over: make(chan struct{})}
}

// await requests a lease, and waits for it. It returns false without a pending request, or if the answer is
// late.
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

func (r *cacheRenewer) renewOnce(ctx context.Context) bool {
	c := r.client
	if c.cache.isRenewed(c.cfg.Clock()) {
		return true // meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, api.CacheLease)
	defer cancel()
	_, _ = c.cell.dispatcher.dispatch(ctx, call{op: "renew the cache lease", path: rootPath(c.cell.cfg), session: c.session, class: classRenewal,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			sent := c.cfg.Clock() // of this attempt: the lease counts from the answered attempt
			reply, err := t.control().chubby.RenewCache(ctx, &chubbypb.RenewCacheRequest{Caller: caller})
			if err == nil {
				//mutant: c.cache.grantLease(api.Epoch(caller.GetEpoch()), session.CacheLeaseEnd(max(sent, c.cfg.Clock()), time.Duration(reply.GetLeaseNs())))
				c.cache.grantLease(api.Epoch(caller.GetEpoch()), session.CacheLeaseEnd(sent, time.Duration(reply.GetLeaseNs())))
			}
			return err
		}}) // calls that the cache cannot answer go to the cell
	return c.cache.isRenewed(c.cfg.Clock())
}
