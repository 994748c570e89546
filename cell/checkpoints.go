package cell

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/peer"
)

// noteCheckPoint has the state at a check point hashed. Raft's goroutine calls it: while one is being hashed only the
// newest waits, as after a start, when the log has many.
func (r *Replica) noteCheckPoint(point fsm.CheckPoint) {
	select {
	case <-r.reached:
	default:
	}
	r.reached <- point // Raft's goroutine alone sends
}

// hashCheckPoints hashes states at check points, until ctx ends.
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

// stateHash takes the hash out of a snapshot that is written to it: its last piece, which is the SHA-256 of all before. It rests
// from time to time, since nobody waits for it, and many wait for the processor.
type stateHash struct {
	ctx   context.Context
	last  []byte
	since int // bytes since the last rest
}

// Bounds of a stateHash.
const (
	hashedAtATime = 256 << 10            // bytes: a quarter to half of a millisecond (BenchmarkCheckPoint)
	hashRest      = 5 * time.Millisecond // ten times that, so that a goroutine that holds the master's mutex seldom shares its processor
)

// Write implements io.Writer.
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
