package cell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/peer"
)

// watchContradictions stops this replica when a majority contradicts it, until ctx ends
// (docs/adr/0035-who-is-contradicted-stops.md).
func (r *Replica) watchContradictions(ctx context.Context) {
	looks := 0
	for range ticks(ctx, compareEvery) {
		own, others := r.comparison.Checks()
		if by, _ := peer.Contradicted(own, others, r.voters()); by == nil {
			continue // the count goes on while this replica has reached a check point and the others have not reported theirs
		}
		//mutant: if looks++; looks > looksBefore && false && r.stopIfContradicted(ctx, own) { //by TestContradictedReplicaStops of ./cell
		if looks++; looks > looksBefore && r.stopIfContradicted(ctx, own) {
			return
		}
	}
}

// looksBefore is how many looks a contradicted replica waits before it stops, since one that may be leaving
// reports no check. Meanwhile all others, which ask every compareEvery, have to learn from it that it differs,
// and to report that. Two, because a question and a look may coincide.
const looksBefore = 2

// stopIfContradicted asks the others again. It stops this replica, and returns true, if a majority of the
// voters contradicts it now.
//
// Claim: a majority runs on, however many replicas stop in this way. A replica announces that it may be leaving
// before it asks, and then contradicts nobody. Take the stopping replica that announced it last: all others
// that stop did so before this one asked. So the majority that contradicted it goes on.
func (r *Replica) stopIfContradicted(ctx context.Context, own peer.Check) bool {
	r.leaving.Store(true)
	voters := r.voters()
	//mutant: by, theirs := peer.Contradicted(own, func() map[string]peer.Check { _, heard := r.comparison.Checks(); return heard }(), voters) //by TestWhoMayLeaveContradictsNobody of ./cell
	by, theirs := peer.Contradicted(own, r.askForChecks(ctx), voters)
	if by == nil {
		r.leaving.Store(false)
		return false
	}
	r.silence()
	why := fmt.Sprintf("replica %s stops, because most of its cell contradicts it: after entry %d of the log the state here has the hash %012x, and at %s, %d of the %d voting replicas, "+
		"it is %012x. Memory, disk or software of this replica is faulty, and what it says cannot be relied on. Its data is kept as it is, in %s, and no replica starts with it again (%s there). "+
		"Put a new replica in its place, best on another machine: start chubbyd serve --join there, under an id that was never used, and run chubbyctl cell replace %s NEW ADDRESS. "+
		"To look at what is in the directory: chubbyctl cell recover %s --to FILE, and chubbyctl cell backup show FILE",
		r.cfg.ID, own.Index, own.Sum, strings.Join(by, ", "), len(by), len(voters), theirs, r.cfg.Data, disk.ContradictionName, r.cfg.ID, r.cfg.Data)
	err := r.stores.NoteContradiction(disk.Contradiction{
		Index: own.Index, Ours: fmt.Sprintf("%012x", own.Sum), Theirs: fmt.Sprintf("%012x", theirs), By: by, Why: why,
	})
	if err != nil {
		why += fmt.Sprintf(". This could not be noted in the directory (%v): do not start the replica again", err)
	}
	r.fail(identity.Refused("%s", why))
	return true
}

// askForChecks returns the others' checks that arrive in time.
func (r *Replica) askForChecks(ctx context.Context) map[string]peer.Check {
	checks := map[string]peer.Check{}
	for id, report := range r.ask(ctx, r.others(), memberProbe) {
		checks[id] = report.Check
	}
	if ctx.Err() != nil {
		return nil
	}
	return checks
}

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
