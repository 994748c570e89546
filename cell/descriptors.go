package cell

import (
	"math"

	"golang.org/x/sys/unix"
)

// ownDescriptors is how many file descriptors the replica reserves: for files, the raft port (maxPortConns),
// the http port (maxHTTPConns), and refused connections. Without one it cannot begin a log segment or a
// snapshot, and ends.
const ownDescriptors = 768

// descriptorLimit returns how many files this process may open. Go's runtime has raised that to the system's
// maximum.
func descriptorLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64 // unknown: refuse nothing for it
	}
	return uint64(limit.Cur) //nolint:unconvert // of another type on other systems
}

// affordableConnections returns how many client connections the limit of file descriptors allows, at least a
// quarter of that limit.
func affordableConnections(wanted int, limit uint64) int {
	left := limit / 4
	if limit > ownDescriptors {
		left = max(left, limit-ownDescriptors)
	}
	return int(max(1, min(uint64(wanted), left)))
}
