package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Cache leases (decision 23) bound how long a change waits for a client that does not answer.
// Session.CacheLease says which sessions have them. Their clients use their caches only under such a lease,
// and ask for the next one meanwhile. These rules make sure that a client uses no stale copy:
//
//   - A change waits for each session that was told to drop a copy, until the session acknowledges or its
//     cache lease expires (awaitLapse, endLapsed).
//   - A session with pending invalidations gets no cache lease (renewCache). So a session that no change
//     waits for any more uses nothing before it has dropped what was changed; its other copies are valid,
//     as if its lease still ran.
//   - A copy that no change waits for stays entered until the session has dropped it (release).
//
// The proof about clocks is in the documentation of package session.

// RenewCache grants a session its cache lease, and returns its length, from the receipt of the call; 0 if it
// gets none.
func (f *Files) RenewCache(ctx context.Context, id api.SessionID) (time.Duration, error) {
	lease := f.coherence.renewCache(id)
	_, err := f.epoch.fence.Prove(ctx) // the proof began after the client sent the call, so the wait of later masters is long enough
	return lease, err
}

// renewCache grants a session its cache lease, unless it has pending invalidations.
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

// left returns the rest of a session's cache lease; 0 if it has expired or there is none.
func (c *copyset) left(id api.SessionID, now session.Instant) time.Duration {
	if until, ok := c.until[id]; ok {
		return max(until.Sub(now), 0)
	}
	return 0
}

// NeedsCacheLease reports whether a session may use its cache only under cache leases; true for a session
// that has ended.
func (s *Sessions) NeedsCacheLease(id api.SessionID) bool {
	record, ok := s.epoch.state().Sessions.Get(id)
	return !ok || record.CacheLease
}

// awaitLapse makes a clearing wait for a leased copy only until its cache lease expires: the session cannot
// renew that before it has dropped the copy.
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

// maxLapses bounds the clearings that one tick ends because of expired cache leases.
const maxLapses = 256

// endLapsed ends the waits for cache leases that have expired at now, of at most most clearings. It reports
// whether there may be more. epoch.mu is held, and released in between.
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
		for id := range cl.left { // after a takeover: the cache leases of earlier masters have expired by now
			//mutant: if _, ok := co.epoch.state().Sessions.Get(id); ok {
			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {
				c.flushed(id)
			}
			co.epoch.mu.pause(1)
		}
	}
	return true
}

// endLapsedOf lets a clearing go on without the sessions whose cache leases have expired. A session without
// an event is the author of the change: it stays, for the next change. epoch.mu is held, and released in
// between.
func (co *coherence) endLapsedOf(cl *clearing, now session.Instant) {
	c := co.copyset
	for id, one := range c.copies[cl.name] {
		if one.leased && one.sequence > 0 && c.left(id, now) == 0 {
			c.release(one)
		}
		co.epoch.mu.pause(1)
	}
}

// nextLapse returns when the next cache lease expires that a change waits for.
func (co *coherence) nextLapse() (session.Instant, bool) {
	_, at, ok := co.copyset.lapses.Next()
	return at, ok
}
