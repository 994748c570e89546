package session

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// Lengthen returns the lease to grant to a session that asked for a certain
// one, if there are so many sessions and the master wants at most rate
// KeepAlives a second (Chubby §2.8: leases grow from 12 s to 60 s under heavy
// load). The rule:
//
//   - n sessions of lease L send n / Due(L) KeepAlives a second. The lease is the
//     shortest multiple of api.DefaultLease for which that is at most rate, at most
//     api.MaxLease, and never less than the client asked for.
//   - A session that asked for less than api.DefaultLease gets that: its client wants a
//     failure to be noticed soon, and few clients should ask for it.
//
// Leases grow in steps to keep the number of changes small: each longer lease
// of each session is an entry in the log before it is granted.
func Lengthen(asked time.Duration, sessions int, rate float64) time.Duration {
	if asked < api.DefaultLease || rate <= 0 {
		return asked
	}
	between := float64(sessions) / rate // seconds, from one KeepAlive of a session to the next
	lease := api.DefaultLease
	//mutants: same (what is longer is cut below)
	for Due(lease).Seconds() < between && lease < api.MaxLease {
		lease += api.DefaultLease
	}
	return min(max(lease, asked), api.MaxLease)
}
