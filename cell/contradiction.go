package cell

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/peer"
)

// checks compares this replica with the others.
type checks struct {
	*mastership
	absences   *absences
	comparison *peer.Comparison
	reached    chan fsm.CheckPoint // the newest applied check point whose state is not hashed yet
	leaving    atomic.Bool         // this replica may be about to stop, and contradicts nobody; see stopIfContradicted
}

// probeOthers asks every other replica regularly, until ctx ends, so that replicas compare even without proofs.
func (c *checks) probeOthers(ctx context.Context) {
	for range ticks(ctx, compareEvery) {
		others := c.others()
		var ids []string
		for _, s := range others {
			ids = append(ids, string(s.ID))
		}
		c.absences.asking(ids) // before they can answer
		c.comparison.Keep(ids)
		for _, s := range others {
			//mutant: _ = s //by TestDivergenceIsNoticed of ./cell
			c.prober.Ask(string(s.ID), string(s.Address), func(peer.Report) {}) // noteReport gets the answer first
		}
		if _, leader := c.raft.LeaderWithID(); leader != "" {
			continue
		}
		for _, m := range c.cfg.Members { // if it was down while all others were replaced, these may report that it was replaced, too
			if m.ID != c.cfg.ID && !c.isConfigured(m.ID) {
				c.prober.Ask(m.ID, m.Raft, func(peer.Report) {})
			}
		}
	}
}

// noteReport takes the answers to all probes, including the fence's.
func (c *checks) noteReport(id string, report peer.Report) {
	c.absences.heard(id)
	//mutant: /* nothing */ //by TestDivergenceIsNoticed of ./cell
	c.passport.NoteHeld(id, report.Applied)
	if !c.comparison.Compare(id, report) {
		return
	}
	if m := c.master.Load(); m != nil {
		//mutant: /* nothing */ //by TestDivergenceIsNoticed of ./cell
		m.Inspector.CheckPoints.Soon() // a replica that differs from most others has to stop before it is the master
	}
}

func (c *checks) probeReport() peer.Report {
	term := c.raft.CurrentTerm()
	state := c.fsm.State()
	report := peer.Report{
		Term:     term,
		Last:     c.raft.LastIndex(),
		Applied:  state.Applied,
		History:  state.History,
		MaxLevel: uint64(c.cfg.supports),
	}
	//mutant: if own := c.comparison.Own(); true { //by TestWhoMayLeaveContradictsNobody of ./cell
	if own := c.comparison.Own(); !c.leaving.Load() { // read last; see checks.leaving
		report.Check = own
	}
	return report
}

// watchContradictions stops this replica when a majority contradicts it, until ctx ends
// (docs/adr/0035-who-is-contradicted-stops.md).
func (c *checks) watchContradictions(ctx context.Context) {
	looks := 0
	for range ticks(ctx, compareEvery) {
		own, others := c.comparison.Checks()
		if by, _ := peer.Contradicted(own, others, c.voters()); by == nil {
			continue // the count goes on while this replica has reached a check point and the others have not reported theirs
		}
		//mutant: if looks++; looks > looksBefore && false && c.stopIfContradicted(ctx, own) { //by TestContradictedReplicaStops of ./cell
		if looks++; looks > looksBefore && c.stopIfContradicted(ctx, own) {
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
func (c *checks) stopIfContradicted(ctx context.Context, own peer.Check) bool {
	c.leaving.Store(true)
	voters := c.voters()
	//mutant: by, theirs := peer.Contradicted(own, func() map[string]peer.Check { _, heard := c.comparison.Checks(); return heard }(), voters) //by TestWhoMayLeaveContradictsNobody of ./cell
	by, theirs := peer.Contradicted(own, c.askForChecks(ctx), voters)
	if by == nil {
		c.leaving.Store(false)
		return false
	}
	c.port.Silence()
	why := fmt.Sprintf("replica %s stops, because most of its cell contradicts it: after entry %d of the log the state here has the hash %012x, and at %s, %d of the %d voting replicas, "+
		"it is %012x. Memory, disk or software of this replica is faulty, and what it says cannot be relied on. Its data is kept as it is, in %s, and no replica starts with it again (%s there). "+
		"Put a new replica in its place, best on another machine: start chubbyd serve --join there, under an id that was never used, and run chubbyctl cell replace %s NEW ADDRESS. "+
		"To look at what is in the directory: chubbyctl cell recover %s --to FILE, and chubbyctl cell backup show FILE",
		c.cfg.ID, own.Index, own.Sum, strings.Join(by, ", "), len(by), len(voters), theirs, c.cfg.Data, disk.ContradictionName, c.cfg.ID, c.cfg.Data)
	err := c.stores.NoteContradiction(disk.Contradiction{
		Index: own.Index, Ours: fmt.Sprintf("%012x", own.Sum), Theirs: fmt.Sprintf("%012x", theirs), By: by, Why: why,
	})
	if err != nil {
		why += fmt.Sprintf(". This could not be noted in the directory (%v): do not start the replica again", err)
	}
	c.fatal(identity.Refused("%s", why))
	return true
}

// askForChecks returns the others' checks that arrive in time.
func (c *checks) askForChecks(ctx context.Context) map[string]peer.Check {
	checks := map[string]peer.Check{}
	for id, report := range c.ask(ctx, c.others(), memberProbe) {
		checks[id] = report.Check
	}
	if ctx.Err() != nil {
		return nil
	}
	return checks
}

// noteCheckPoint queues a check point's state for hashing. Raft's goroutine calls it. During a hash only the
// newest waits: after a start the log has many.
func (c *checks) noteCheckPoint(point fsm.CheckPoint) {
	select {
	case <-c.reached:
	default:
	}
	c.reached <- point // only Raft's goroutine sends
}

func (c *checks) hashCheckPoints(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case point := <-c.reached:
			began := c.clock()
			hash := stateHash{ctx: ctx}
			if _, err := point.State.WriteTo(&hash); err != nil {
				return // ctx has ended
			}
			software := fmt.Sprintf("%s %d", Version(), c.cfg.supports)
			own := peer.NewCheck(point.Index, point.Term, software, hash.last)
			c.comparison.Reached(own)
			c.log.Debug("the state at a check point was hashed", "index", point.Index, "sum", own.Sum, "took", c.clock().Sub(began))
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
