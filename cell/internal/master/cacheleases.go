package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Cache leases (decision 23) bound how long a change waits for a client that does not
// answer. Session.CacheLease says which sessions have them: their clients use what they
// have cached only under one, and ask for the next while they do. The rules, by
// which a client that may use its cache has nothing in it that is not true:
//
//   - Who is told to drop something is waited for until it has said so, or its cache
//     lease is over (awaitLapse, endLapsed).
//   - Who was told to drop something, and has not said so, is granted no cache lease
//     (renewCache). So whom no change waits for any more uses nothing before it has
//     dropped what was changed; and what else it has is true, as if its lease had run.
//   - A copy that is not waited for stays entered until it was dropped (release).
//
// The proof about clocks is in the documentation of package session.

// RenewCache grants a session its cache lease, and returns for how long, from the receipt
// of the call; 0 if it is granted none.
func (f *Files) RenewCache(ctx context.Context, id api.SessionID) (time.Duration, error) {
	lease := f.coherence.renewCache(id)
	_, err := f.epoch.fence.Prove(ctx) // it began after the client sent the call, so what later masters wait is enough
	return lease, err
}

// renewCache grants a session its cache lease, unless it has yet to drop something.
func (co *coherence) renewCache(id api.SessionID) time.Duration {
	if s, ok := co.epoch.state().Sessions.Get(id); !ok || !s.CacheLease {
		return 0
	}
	co.epoch.mu.Lock()
	defer co.epoch.mu.Unlock()
	if !co.leases.Alive(id) || len(co.copyset.told[id]) > 0 {
		return 0
	}
	co.copyset.until[id] = co.epoch.clock().Add(api.CacheLease)
	return api.CacheLease
}

// left returns what is left of the cache lease of a session, 0 if nothing is.
func (c *copyset) left(id api.SessionID, now session.Instant) time.Duration {
	if until, ok := c.until[id]; ok {
		return max(until.Sub(now), 0)
	}
	return 0
}

// NeedsCacheLease reports whether a session uses what it has cached only under cache
// leases. Of one that has ended it says so.
func (s *Sessions) NeedsCacheLease(id api.SessionID) bool {
	record, ok := s.epoch.state().Sessions.Get(id)
	return !ok || record.CacheLease
}

// awaitLapse has a clearing wait for a copy that is to be dropped no longer than its
// cache lease runs, if it has one: that is not renewed before it was dropped.
func (c *copyset) awaitLapse(cl *clearing, one *cachedCopy, until, now session.Instant) {
	if !one.leased {
		return
	}
	left := max(until.Sub(now), 0)
	//mutant: if left >= 0 {
	if left == 0 {
		c.release(one)
		return
	}
	if at, ok := c.lapses.At(cl); !ok || at < now.Add(left) {
		c.lapses.Put(cl, now.Add(left))
	}
}

// maxLapses bounds the clearings that one tick ends because cache leases are over.
const maxLapses = 256

// endLapsed lets go the changes that wait for cache leases which are over at now: those of
// most clearings at most. It reports whether there are more. epoch.mu is held, and
// released in between.
func (co *coherence) endLapsed(now session.Instant, most int) (more bool) {
	c := co.copyset
	for range most {
		cl, at, ok := c.lapses.Next()
		if !ok || at > now {
			return false
		}
		c.lapses.Drop(cl)
		if cl.left == nil {
			co.endLapsedOf(cl, now)
			continue
		}
		for id := range cl.left { // after a takeover: whatever earlier masters granted is over by now
			//mutant: if _, ok := co.epoch.state().Sessions.Get(id); ok {
			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {
				c.flushed(id)
			}
			co.epoch.mu.pause(1)
		}
	}
	return true
}

// endLapsedOf lets a clearing go on without those whose cache leases are over. Who was not
// told is the author of the change, and has to be told of the next. epoch.mu is held, and
// released in between.
func (co *coherence) endLapsedOf(cl *clearing, now session.Instant) {
	c := co.copyset
	for id, one := range c.copies[cl.name] {
		if one.leased && one.sequence > 0 && c.left(id, now) == 0 {
			c.release(one)
		}
		co.epoch.mu.pause(1)
	}
}

// nextLapse returns when a cache lease is over that a change waits for.
func (co *coherence) nextLapse() (session.Instant, bool) {
	_, at, ok := co.copyset.lapses.Next()
	return at, ok
}
