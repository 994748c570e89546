package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Cache leases (decision 23) bound how long a change waits for a silent client. Session.CacheLease says which
// sessions have them. Their clients use their caches only under such a lease, and meanwhile ask for the next.
// By these rules no client uses a stale copy:
//
//   - A change waits for each session with an invalidation until it acknowledges, or its cache lease expires
//     (awaitLapse, endLapsed).
//   - A session with pending invalidations gets no cache lease (renewCache). So once changes stop waiting for it,
//     it uses nothing before it has dropped the changed copies. Its other copies are valid, as under its lease.
//   - A copy that no change waits for stays entered until it is dropped (release).
//
// The proof about clocks is in the documentation of package session.

// RenewCache grants a session its cache lease, and returns its length, from the receipt of the call, or 0.
func (f *Files) RenewCache(ctx context.Context, id api.SessionID) (time.Duration, error) {
	lease := f.coherence.renewCache(id)
	_, err := f.epoch.fence.Prove(ctx) // it began after the call was sent, so later masters wait long enough
	return lease, err
}

// renewCache grants a cache lease, unless the session has pending invalidations.
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

// left returns the rest of a session's cache lease.
func (c *copyset) left(id api.SessionID, now session.Instant) time.Duration {
	if until, ok := c.until[id]; ok {
		return max(until.Sub(now), 0)
	}
	return 0
}

// NeedsCacheLease reports whether a session may use its cache only under cache leases; true for an ended one.
func (s *Sessions) NeedsCacheLease(id api.SessionID) bool {
	record, ok := s.epoch.state().Sessions.Get(id)
	return !ok || record.CacheLease
}

// awaitLapse lets a clearing wait for a leased copy only until its lease expires: without the drop it is not
// renewed.
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

// maxLapses bounds the clearings of one tick.
const maxLapses = 256

// endLapsed ends the waits for cache leases expired at now, for at most most clearings. It reports whether
// there are more.
func (co *coherence) endLapsed(mu hold, now session.Instant, most int) (more bool) {
	c := co.copyset
	for range most {
		cl, at, ok := c.lapses.Next()
		if !ok || at > now {
			return false
		}
		c.lapses.Drop(cl)
		if cl.left == nil {
			co.endLapsedOf(mu, cl, now)
			continue
		}
		for id := range cl.left { // after a takeover: earlier cache leases have expired
			//mutant: if _, ok := co.epoch.state().Sessions.Get(id); ok {
			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {
				c.flushed(id)
			}
			mu.pause(1)
		}
	}
	return true
}

// endLapsedOf ends a clearing's waits for expired cache leases. A copy without an invalidation is the
// author's, and stays for the next change.
func (co *coherence) endLapsedOf(mu hold, cl *clearing, now session.Instant) {
	c := co.copyset
	for id, one := range c.copies[cl.name] {
		if one.leased && one.sequence > 0 && c.left(id, now) == 0 {
			c.release(one)
		}
		mu.pause(1)
	}
}

// nextLapse returns when the next such cache lease expires.
func (co *coherence) nextLapse() (session.Instant, bool) {
	_, at, ok := co.copyset.lapses.Next()
	return at, ok
}
