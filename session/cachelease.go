package session

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// CacheLeaseEnd returns until when a client may use what it has cached, by its clock,
// if the request that was sent at that instant was granted a cache lease of that
// length; see the package comment. It cuts the length to api.CacheLease.
func CacheLeaseEnd(sent Instant, lease time.Duration) Instant {
	//mutant: return sent.Add(min(max(lease, 0), api.CacheLease)) //by TestCacheLeaseEndsByTheClock of ./client
	return sent.Add(atLeast(min(max(lease, 0), api.CacheLease)))
}
