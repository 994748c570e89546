package client

import (
	"context"
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
		if was != foundLapsed || asked || !awaitCacheLease(ctx, c, now) {
			return was == foundUsable
		}
	}
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
	late := time.NewTimer(maxRenewWait)
	defer late.Stop()
	select {
	case <-asked:
		return true
	case <-late.C:
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
	_ = c.readIn(ctx, classRenewal, "renew the cache lease", rootPath(c.cell.cfg), func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
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
