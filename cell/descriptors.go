package cell

import (
	"math"

	"golang.org/x/sys/unix"
)

// ownDescriptors is how many file descriptors are kept for the replica itself: its
// files, the raft port (maxPortConns), the http port (maxHTTPConns), and clients'
// connections that are refused. Without one it cannot begin a segment of its log, or a
// snapshot, and ends.
const ownDescriptors = 768

// descriptorLimit returns how many files this process may have open. Go's runtime has
// raised that to what the system allows.
func descriptorLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64 // unknown: nothing is to be refused for it
	}
	return uint64(limit.Cur) //nolint:unconvert // of another type on other systems
}

// affordableConnections returns how many of the connections that clients may have the
// limit of file descriptors leaves, a quarter of it at least.
func affordableConnections(wanted int, limit uint64) int {
	left := limit / 4
	if limit > ownDescriptors {
		left = max(left, limit-ownDescriptors)
	}
	return int(max(1, min(uint64(wanted), left)))
}
