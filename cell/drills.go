package cell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/session"
)

// A drill makes a cell do at a chosen moment what it would do in a failure (docs/adr/0037-drills.md). It lasts as long as the
// call that asked for it, and for a bounded time, and it belongs to a master: it ends soon after the epoch. What the two
// drills do that are more than an announcement is what happens in a fail-over, and nothing else. There is no
// master for a while, and then there is one of a later epoch: so no lease, lock-delay or cache has a rule of its own.

// drillRest is how long a master has to have served before a drill begins: the last one, which may have brought it about,
// is still being looked at, and two effects could not be told apart.
const drillRest = 10 * time.Second

// drillAfter bounds how long a drill goes on after its epoch has ended. The next master may not have heard of the drill, and begins another
// one only when it has served for drillRest, which is longer.
const drillAfter = drillRest - 2*time.Second

// drills is what a replica knows of drills: that which goes on here, and the last one.
type drills struct {
	clock session.Clock

	mu     sync.Mutex // guards what follows; no other mutex is taken while it is held
	last   *drill     // nil if there was none since this replica was started
	served session.Instant
}

// drill is one drill. The mutex of its drills guards ended.
type drill struct {
	kind  wire.DrillKind
	begun session.Instant
	due   session.Instant // when it ends by itself
	unix  int64           // when it began, for display
	ended session.Instant
	over  bool
}

// masterServes notes that an epoch has begun here.
func (d *drills) masterServes() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served = d.clock()
}

// begin makes a drill the one that goes on, unless there is one, or the master is too young.
func (d *drills) begin(kind wire.DrillKind, limit time.Duration, unix int64) (*drill, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	if d.last != nil && !d.last.over {
		return nil, api.Errorf(api.QuotaExceeded, "another drill (%s) has been going on for %v, and ends by itself within %v: there is one at a time",
			d.last.kind.Word(), now.Sub(d.last.begun).Truncate(time.Second), max(d.last.due.Sub(now), 0).Round(time.Second))
	}
	if rested := now.Sub(d.served); rested < drillRest {
		return nil, api.Errorf(api.Unavailable, "the master has served for %v: a drill begins when the cell has been well for %v", rested.Truncate(time.Second), drillRest)
	}
	d.last = &drill{kind: kind, begun: now, due: now.Add(limit), unix: unix}
	return d.last, nil
}

// hasten notes that the epoch of a drill has ended, and returns how long it still goes on.
func (d *drills) hasten(one *drill) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	one.due = min(one.due, now.Add(drillAfter))
	return max(one.due.Sub(now), 0)
}

// end notes that a drill has ended, and returns how long it took.
func (d *drills) end(one *drill) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.ended, one.over = d.clock(), true
	return one.ended.Sub(one.begun)
}

// running returns the drill that goes on here, and when it ends by itself; 0 if there is none.
func (d *drills) running() (kind wire.DrillKind, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || d.last.over {
		return 0, 0
	}
	return d.last.kind, max(d.last.due.Sub(d.clock()), 0)
}

// status describes the last drill that began here.
func (d *drills) status() *wire.DrillStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		return nil
	}
	now := d.clock()
	s := &wire.DrillStatus{Kind: d.last.kind, Since: now.Sub(d.last.begun), Running: !d.last.over}
	if d.last.over {
		s.Took = d.last.ended.Sub(d.last.begun)
	} else {
		s.Left = max(d.last.due.Sub(now), 0)
	}
	return s
}

// lastUnix returns when the last drill began here, for display; 0 if there was none.
func (d *drills) lastUnix() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		return 0
	}
	return d.last.unix
}

// Drill implements wire.Replica.
func (s served) Drill(ctx context.Context, m *master.Master, ask wire.Drill, begun func() error) error {
	return s.r.drill(ctx, m, ask, begun)
}

// drill does a drill that an operator has asked for, and returns when it has ended and the cell is to be as before: when its time
// is over, when ctx ends (the caller has cancelled it, or is gone), or drillAfter after the epoch, whatever comes first.
func (r *Replica) drill(ctx context.Context, m *master.Master, ask wire.Drill, begun func() error) error {
	if ask.Kind == wire.Outage || ask.Kind == wire.HardFailOver {
		if others, err := r.successors(""); err != nil || len(others) == 0 {
			return api.Errorf(api.InvalidArgument, "%s takes another replica that can be elected, and the cell has none", ask.Kind.Word())
		}
	}
	one, err := r.drills.begin(ask.Kind, ask.Limit, r.cfg.Wall())
	if err != nil {
		return err
	}
	r.log.Warn("a drill begins", "event", "drill_began", "drill", ask.Kind.Word(), "principal", ask.Principal, "reason", ask.Reason, "limit", ask.Limit, "epoch", m.Epoch())
	defer func() {
		r.log.Warn("the drill has ended", "event", "drill_ended", "drill", ask.Kind.Word(), "principal", ask.Principal, "took", r.drills.end(one))
	}()
	if err := begun(); err != nil {
		return err
	}
	limit := time.NewTimer(ask.Limit)
	defer limit.Stop()
	switch ask.Kind {
	case wire.Outage:
		return r.drillOutage(ctx, m, limit.C)
	case wire.HardFailOver:
		if err := r.drillHardFailOver(ctx, m); err != nil {
			return err
		}
	}
	// What follows is the caller's: it is only known that the drill goes on.
	for deposed := m.Context().Done(); ; {
		select {
		case <-deposed:
			deposed = nil
			limit.Reset(r.drills.hasten(one))
		case <-ctx.Done():
			return nil
		case <-limit.C:
			return nil
		case <-r.epochsEnded: // the replica stops
			return nil
		}
	}
}

// errDrill is why an epoch ends for a drill.
func (r *Replica) errDrill(kind wire.DrillKind) error {
	return api.Errorf(api.Unavailable, "replica %s serves nobody for now, because of a drill (%s) that an operator has asked for; try again", r.cfg.ID, kind.Word())
}

// giveUp is the wish that an epoch ends although this replica leads.
type giveUp struct {
	term uint64
	why  error
}

// abandon ends the epoch of a master. Afterwards this replica leads Raft, unless it is deposed, and is nobody's master: an epoch begins
// once in a term. The error is that there was nothing to end.
func (r *Replica) abandon(ctx context.Context, m *master.Master, why error) error {
	select {
	case r.giveUps <- giveUp{uint64(m.Epoch()), why}:
	case <-m.Context().Done():
	case <-r.epochsEnded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-m.Context().Done() // runEpochs ends it, or has
	if r.raft.CurrentTerm() != uint64(m.Epoch()) {
		return r.notMaster() // it was deposed before
	}
	return nil
}

// drillOutage leaves the cell without a master until ctx or the time ends, and then has another replica stand for election. Meanwhile this
// replica leads Raft, so that no other is elected; if it is deposed all the same, as by its death, the outage is over.
func (r *Replica) drillOutage(ctx context.Context, m *master.Master, limit <-chan time.Time) error {
	term := uint64(m.Epoch())
	early := api.Errorf(api.Unavailable, "the outage has ended before its time: replica %s has lost the leadership, and another is elected", r.cfg.ID)
	switch err := r.abandon(ctx, m, r.errDrill(wire.Outage)); {
	case ctx.Err() != nil && err != nil:
		return nil // it has ended before it began: the caller wants none
	case err != nil:
		return early
	}
	tick := time.NewTicker(drillLook)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-tick.C:
			if !r.isVacant(term) {
				return early
			}
		case <-limit:
			waiting = false
		case <-ctx.Done():
			waiting = false
		case <-r.epochsEnded:
			return nil
		}
	}
	return r.fillVacancy(context.WithoutCancel(ctx), term)
}

// drillLook is between two looks at who leads.
const drillLook = 20 * time.Millisecond

// isVacant reports whether this replica leads Raft in that term still, whose epoch it has ended.
func (r *Replica) isVacant(term uint64) bool {
	is, leads := r.leads()
	return leads && is == term
}

// fillVacancy has the cell elect a master after this replica has given its epoch up: it asks the others, the one with the longest
// log first, to stand for election. If none of them is elected, it falls silent for a moment, so that they find out by themselves. If
// that does not help either, the replica ends itself: a cell must not stay without a master because of a drill.
func (r *Replica) fillVacancy(ctx context.Context, term uint64) error {
	for range drillTries {
		if !r.isVacant(term) {
			return nil
		}
		if err := r.haveAnotherStand(ctx, term); err != nil && r.isVacant(term) {
			r.log.Warn("after a drill: no replica was elected; trying again", "error", err)
		}
		select {
		case <-r.epochsEnded:
			return nil
		default:
		}
	}
	if r.fallSilent(term); r.isVacant(term) {
		r.fail(fmt.Errorf("replica %s leads in term %d, and could not have another elected after a drill: it stops, so that one is", r.cfg.ID, term))
	}
	return nil
}

// drillTries is how often replicas are asked to stand for election. Each takes an election timeout, or transferProbeLimit, at most.
const drillTries = 3

// haveAnotherStand asks another replica to stand for election, and waits until it has been elected.
func (r *Replica) haveAnotherStand(ctx context.Context, term uint64) error {
	select {
	case r.handing <- struct{}{}: // release waits for the goroutine below
	case <-r.epochsEnded:
		return nil
	}
	done := func() { <-r.handing }
	successors, err := r.successors("")
	if err != nil {
		done()
		return err
	}
	target, err := r.awaitCaughtUp(ctx, term, successors, transferProbeLimit)
	if err != nil {
		done()
		return err
	}
	asked := make(chan error, 1)
	go func() { // ends when the target has answered, or the transport is closed; release waits for it
		defer done()
		asked <- r.askToStand(target)
	}()
	late := time.NewTimer(r.cfg.ElectionTimeout)
	defer late.Stop()
	tick := time.NewTicker(drillLook / 4)
	defer tick.Stop()
	for r.isVacant(term) {
		select {
		case err := <-asked:
			if err != nil {
				return err
			}
			asked = nil // it was accepted
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("replica %s was asked to stand for election, and was not elected within %v", target.ID, r.cfg.ElectionTimeout)
		case <-r.epochsEnded:
			return nil
		}
	}
	return nil
}

// drillHardFailOver gives the mastership up and falls silent, as a master does whose machine has lost its network: the others are not
// told, but have to find out by their election timeout. It returns when this replica speaks again.
func (r *Replica) drillHardFailOver(ctx context.Context, m *master.Master) error {
	if err := r.abandon(ctx, m, r.errDrill(wire.HardFailOver)); err != nil {
		return err
	}
	if r.fallSilent(uint64(m.Epoch())); r.isVacant(uint64(m.Epoch())) {
		return r.fillVacancy(context.WithoutCancel(ctx), uint64(m.Epoch()))
	}
	return nil
}

// drillSilence is for how many election timeouts the replica says nothing: the others notice after one, or nearly two, and
// elect; a leader that hears nothing steps down after one.
const drillSilence = 3

// fallSilent breaks the connections to the other replicas and makes none, until this replica has stepped down and the others have had
// the time for an election. Then they hear of each other again, whatever came of it.
func (r *Replica) fallSilent(term uint64) {
	speak := r.transport.Hush()
	defer speak()
	late := time.NewTimer(drillSilence * r.cfg.ElectionTimeout)
	defer late.Stop()
	select {
	case <-late.C:
	case <-r.epochsEnded:
	}
	if r.isVacant(term) {
		r.log.Warn("this replica leads although it has heard nothing of the others", "term", term)
	}
}

// vacancyError is what callers are told while a drill leaves the cell without a master; nil if none does.
func (r *Replica) vacancyError() error {
	kind, left := r.drills.running()
	if kind != wire.Outage && kind != wire.HardFailOver {
		return nil
	}
	var e *api.Error
	if err := r.errDrill(kind); errors.As(err, &e) && kind == wire.Outage {
		e.Message += fmt.Sprintf("; it ends by itself within %v", left.Round(time.Second))
		return e
	}
	return r.errDrill(kind)
}
