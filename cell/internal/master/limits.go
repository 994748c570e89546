package master

import "github.com/chubbylock/chubby/api"

// limits bounds what a master puts into the log at a time, and what waits for
// that. All sizes are bytes of the real encoding (raftfsm.Command.Encode).
//
// What is in the log has to be read again by every replica that restarts, and
// sent to every replica that lags, whatever it was that made it grow. So no
// command is let into an entry that exceeds the limit, and those commands that
// could name very many things (sessions that end, nodes to remove, successors of
// a lock) are cut into pieces that are each correct alone. Tests make the limits
// small.
type limits struct {
	command int // of one command; a larger one is refused before it is written
	batch   int // of the commands in one entry, unless it has only one
	claims  int // of the successors that one command names
	pending int // of the commands that wait for their entry
	share   int // of those, the commands of one session
}

// defaultLimits are those of every master.
func defaultLimits() limits {
	return limits{
		command: api.MaxCommand,
		batch:   api.MaxBatchBytes,
		claims:  32 << 10, // a claim has 4 KiB at most, and most have less than 100 bytes
		pending: 64 << 20, // more than 200 full entries, which take about a second
		share:   8 << 20,  // 32 whole files, so that one session does not keep out all others
	}
}

// maxPending bounds the commands that wait for their entry.
const maxPending = 64 * api.MaxBatch

// firstPart returns as many of the first elements of a list as have at most that many
// bytes together, but one at least, if there is any.
func firstPart[T any](list []T, limit int, size func(T) int) []T {
	bytes := 0
	for i, one := range list {
		if bytes += size(one); i > 0 && bytes > limit {
			return list[:i:i]
		}
	}
	return list[:len(list):len(list)]
}
