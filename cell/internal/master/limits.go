package master

import "github.com/chubbylock/chubby/api"

// limits bounds what a master puts into the log at a time, and what waits for that. Sizes are bytes of the
// real encoding (raftfsm.Command.Encode).
//
// A restarted replica reads the log again, and a lagging one receives it. So no command beyond the limit
// enters the log. Commands that could name very many things (ending sessions, removed nodes, successors) are
// cut into parts, each correct alone. Tests make the limits small.
type limits struct {
	command int // of one command; a larger one is refused before it is written
	batch   int // of the commands in one entry, unless it has only one
	claims  int // of the successors in one command
	pending int // of the commands that wait for their entry
	share   int // of those, from one session
}

func defaultLimits() limits {
	return limits{
		command: api.MaxCommand,
		batch:   api.MaxBatchBytes,
		claims:  32 << 10, // a claim has at most 4 KiB, most have less than 100 bytes
		pending: 64 << 20, // more than 200 full entries, about a second
		share:   8 << 20,  // 32 whole files, so that one session does not block all others
	}
}

// maxPending bounds the commands that wait for their entry.
const maxPending = 64 * api.MaxBatch

// firstPart returns the first elements of a list within limit bytes, and at least one if there is any.
func firstPart[T any](list []T, limit int, size func(T) int) []T {
	bytes := 0
	for i, one := range list {
		if bytes += size(one); i > 0 && bytes > limit {
			return list[:i:i]
		}
	}
	return list[:len(list):len(list)]
}
