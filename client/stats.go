package client

import "sync/atomic"

// Stats counts what has become of a session, and of its calls, since it was
// opened.
type Stats struct {
	KeepAlives       uint64 // sent
	KeepAlivesFailed uint64 // not answered in time, or refused
	Jeopardies       uint64 // times that the lease ran out by the local clock
	Rescues          uint64 // times that the session was safe again after that
	FailOvers        uint64 // masters heard of after the first
	Attempts         uint64 // of calls of the session, each time one was sent to a replica; without KeepAlives
	Cache            CacheStats
}

// counters are what Stats shows, without the cache's.
type counters struct {
	keepAlives, keepAlivesFailed, jeopardies, rescues, failOvers, attempts atomic.Uint64
}

// Stats returns the numbers of now. Each is right; together they are not of one
// moment.
func (c *Client) Stats() Stats {
	n := &c.session.counters
	return Stats{
		KeepAlives: n.keepAlives.Load(), KeepAlivesFailed: n.keepAlivesFailed.Load(), Jeopardies: n.jeopardies.Load(),
		Rescues: n.rescues.Load(), FailOvers: n.failOvers.Load(), Attempts: n.attempts.Load(), Cache: c.CacheStats(),
	}
}

// CacheStats returns Stats().Cache. It is all zero with Config.NoCache.
func (c *Client) CacheStats() CacheStats { return c.cache.currentStats() }
