package cell

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/peer"
)

// noteCheckPoint queues a check point's state for hashing. Raft's goroutine calls it. During a hash only the
// newest waits: after a start the log has many.
func (r *Replica) noteCheckPoint(point fsm.CheckPoint) {
	select {
	case <-r.reached:
	default:
	}
	r.reached <- point // only Raft's goroutine sends
}

func (r *Replica) hashCheckPoints(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case point := <-r.reached:
			began := r.clock()
			hash := stateHash{ctx: ctx}
			if _, err := point.State.WriteTo(&hash); err != nil {
				return // ctx has ended
			}
			software := fmt.Sprintf("%s %d", Version(), r.cfg.supports)
			own := peer.NewCheck(point.Index, point.Term, software, hash.last)
			r.comparison.Reached(own)
			r.log.Debug("the state at a check point was hashed", "index", point.Index, "sum", own.Sum, "took", r.clock().Sub(began))
		}
	}
}

// stateHash takes the hash from a snapshot written to it: the last piece, the SHA-256 of all before. It rests
// regularly, because other work needs the processor more urgently.
type stateHash struct {
	ctx   context.Context
	last  []byte
	since int // bytes since the last rest
}

// Limits of a stateHash.
const (
	hashedAtATime = 256 << 10            // bytes: a quarter to half of a millisecond (BenchmarkCheckPoint)
	hashRest      = 5 * time.Millisecond // ten times that, so that a goroutine with the master's mutex seldom shares its processor
)

func (h *stateHash) Write(p []byte) (int, error) {
	h.last = append(h.last[:0], p...)
	if h.since += len(p); h.since >= hashedAtATime {
		h.since = 0
		rest := time.NewTimer(hashRest)
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-h.ctx.Done():
			return 0, context.Cause(h.ctx)
		}
	}
	return len(p), nil
}
