package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/session"
)

// Cache leases (decision 23) bound how long a change waits for a silent client. Session.CacheLease says which
// sessions have them. Their clients use their caches only under such a lease, and meanwhile ask for the next.
// By these rules no client uses a stale copy:
//
//   - A change waits for each session with an invalidation until it acknowledges, or its cache lease expires
//     (AwaitLapse, endLapsed).
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
	if !co.leases.Alive(id) || len(co.copyset.Told[id]) > 0 {
		return 0
	}
	co.copyset.Until[id] = co.epoch.clock().Add(api.CacheLease)
	return api.CacheLease
}

// NeedsCacheLease reports whether a session may use its cache only under cache leases; true for an ended one.
func (s *Sessions) NeedsCacheLease(id api.SessionID) bool {
	record, ok := s.epoch.state().Sessions.Get(id)
	return !ok || record.CacheLease
}

// maxLapses bounds the clearings of one tick.
const maxLapses = 256

// endLapsed ends the waits for cache leases expired at now, for at most most clearings. It reports whether
// there are more.
func (co *coherence) endLapsed(mu hold, now session.Instant, most int) (more bool) {
	c := co.copyset
	for range most {
		cl, at, ok := c.Lapses.Next()
		if !ok || at > now {
			return false
		}
		c.Lapses.Drop(cl)
		if cl.Left == nil {
			co.endLapsedOf(mu, cl, now)
			continue
		}
		for id := range cl.Left { // after a takeover: earlier cache leases have expired
			//mutant: if _, ok := co.epoch.state().Sessions.Get(id); ok {
			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {
				c.Flushed(id)
			}
			mu.pause(1)
		}
	}
	return true
}

// endLapsedOf ends a clearing's waits for expired cache leases. A copy without an invalidation is the
// author's, and stays for the next change.
func (co *coherence) endLapsedOf(mu hold, cl *tables.Clearing, now session.Instant) {
	c := co.copyset
	for id, one := range c.Copies[cl.Name] {
		if one.Leased && one.Sequence > 0 && c.Left(id, now) == 0 {
			c.Release(one)
		}
		mu.pause(1)
	}
}

// registerReader enters a session about to read names, and reports whether it may keep all.
func (co *coherence) registerReader(id api.SessionID, names ...api.Name) bool {
	if s, ok := co.epoch.state().Sessions.Get(id); !ok || !s.MayCache {
		return false
	}
	co.epoch.mu.Lock()
	defer co.epoch.mu.Unlock()
	return co.enterReader(id, names...)
}

// enterReader is registerReader, with epoch.mu held.
func (co *coherence) enterReader(id api.SessionID, names ...api.Name) bool {
	s, ok := co.epoch.state().Sessions.Get(id)
	if !ok || !s.MayCache || !co.leases.Alive(id) {
		return false
	}
	all, now := true, co.epoch.clock()
	if box := co.boxes.ByID[id]; box != nil {
		for _, one := range co.copyset.Surplus(id, s.Principal) {
			co.invalidate(box, one, now)
		}
	}
	for _, name := range names {
		all = co.copyset.Register(id, s.Principal, name, s.CacheLease, now) && all
	}
	return all
}
