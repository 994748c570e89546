package client

import "sync/atomic"

// Stats counts what has happened to a session, and to its calls, since it was opened.
type Stats struct {
	KeepAlives       uint64     // sent
	KeepAlivesFailed uint64     // not answered in time, or refused
	Jeopardies       uint64     // times that the lease ran out by the local clock
	Rescues          uint64     // times that the session became safe again after that
	FailOvers        uint64     // masters after the first
	Attempts         uint64     // times that a call of the session was sent to a replica, without KeepAlives
	Cache            CacheStats // all zero with Config.NoCache
}

// counters are the counts of Stats, without the cache's.
type counters struct {
	keepAlives, keepAlivesFailed, jeopardies, rescues, failOvers, attempts atomic.Uint64
}

// Stats returns the current counts. Each is exact; together they are not of one
// moment.
func (c *Client) Stats() Stats {
	n := &c.session.counters
	return Stats{
		KeepAlives: n.keepAlives.Load(), KeepAlivesFailed: n.keepAlivesFailed.Load(), Jeopardies: n.jeopardies.Load(),
		Rescues: n.rescues.Load(), FailOvers: n.failOvers.Load(), Attempts: n.attempts.Load(), Cache: c.cache.currentStats(),
	}
}
