package session

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// Lengthen returns the lease that a session is to be granted which asked for a
// certain one, where there are so many sessions, and the master wants at most
// rate KeepAlives a second (Chubby §2.8: leases grow from 12 s to 60 s under heavy
// load). The rule:
//
//   - n sessions of lease L send n / Due(L) KeepAlives a second that extend a
//     lease. Leases are the
//     shortest multiple of api.DefaultLease with which that is no more than rate,
//     at most api.MaxLease, and never less than what was asked for.
//   - A session that asked for less than api.DefaultLease gets what it asked for: it
//     wants its failure to be noticed soon, and there are to be few of its kind.
//
// Steps keep the number of changes small: each longer lease is an entry in the
// log before it is granted, for each session.
func Lengthen(asked time.Duration, sessions int, rate float64) time.Duration {
	if asked < api.DefaultLease || rate <= 0 {
		return asked
	}
	between := float64(sessions) / rate // seconds, from one KeepAlive of a session to the next
	lease := api.DefaultLease
	for Due(lease).Seconds() < between && lease < api.MaxLease {
		lease += api.DefaultLease
	}
	return min(max(lease, asked), api.MaxLease)
}
