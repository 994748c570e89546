package cell

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/raftfsm"
)

// runEpochs makes this replica master while it leads Raft, and ends the epoch when it no longer leads.
//
// A message in elections only says that something has changed: several may be queued, and Raft may have moved
// on. So runEpochs checks Raft's current state, and begins at most one epoch a term. Raft blocks on that
// channel, so only the select waits here.
func (r *Replica) runEpochs(ctx context.Context, elections <-chan bool) {
	var begun uint64 // the latest term in which an epoch began
	var running epochRun
	for {
		select {
		case <-ctx.Done():
			if running.end != nil {
				<-running.ended
			}
			return
		case <-elections:
		case <-running.ended:
			running = epochRun{}
		}
		term, leads := r.leads()
		switch {
		//mutant: case running.end != nil: //by TestOldNewsBeginNoEpoch of ./cell
		case running.end != nil && (!leads || term != begun):
			running.end(r.notMaster())
		case running.end == nil && leads && term > begun:
			begun, running = term, r.startEpoch(ctx, term)
		}
	}
}

type epochRun struct {
	end   context.CancelCauseFunc // ends the epoch; nil without one
	ended chan struct{}           // closed when all of it has ended
}

func (r *Replica) startEpoch(ctx context.Context, term uint64) epochRun {
	ctx, end := context.WithCancelCause(ctx)
	run := epochRun{end: end, ended: make(chan struct{})}
	go func() {
		defer close(run.ended)
		defer end(nil)
		r.runEpoch(ctx, term)
	}()
	return run
}

// runEpoch runs one epoch, from its first entry to its last goroutine (Chubby §2.9). A replica that leads Raft
// and cannot become master ends itself, since no other is elected while it leads. In an outage it does so on
// purpose, and runEpoch waits for the end.
func (r *Replica) runEpoch(leading context.Context, term uint64) {
	began, vacant := r.clock(), r.withoutMaster()
	ctx, end := context.WithCancelCause(leading)
	defer end(nil)
	m, err := r.takeOver(ctx, term)
	switch {
	case ctx.Err() != nil:
		r.log.Debug("elected, and deposed before the epoch began", "term", term, "error", err)
		return
	case err != nil:
		r.fail(fmt.Errorf("replica %s leads in term %d and cannot become the master: %w", r.cfg.ID, term, err))
		return
	}
	applied, sessions := r.clock(), r.fsm.State().Sessions.Len()
	r.metrics.master.takeovers.began(m.Epoch(), sessions, vacant, began)
	m.Start()
	took := r.metrics.master.takeovers.nowServes()
	r.master.Store(m)
	serving := r.clock()
	r.log.Info("master", "event", "master_began", "epoch", m.Epoch(), "sessions", sessions, "took", took,
		"phase_log", applied.Sub(began), "phase_leases", took-applied.Sub(began))
	r.warnOfOperators()
	select {
	case <-ctx.Done():
	case o := <-r.outages.asked:
		defer r.withhold(leading, o)
		end(r.beginOutage(o, m.Epoch()))
	}
	r.master.Store(nil)
	r.metrics.master.takeovers.ended()
	m.Wait()
	r.log.Info("not master any more", "event", "master_ended", "epoch", m.Epoch(), "reason", r.whyEnded(context.Cause(ctx), term), "served", r.clock().Sub(serving))
}

// whyEnded returns why the epoch of that term has ended. Clients get cause, which only says where to ask.
func (r *Replica) whyEnded(cause error, term uint64) string {
	now, leads := r.leads()
	switch away := r.transport.Unanswering(); {
	case leads && now == term:
		return cause.Error()
	case now > term:
		return fmt.Sprintf("term %d has begun: another replica was elected, or stands for election", now)
	case len(away) > 0:
		return fmt.Sprintf("too few replicas answer; those that do not: %s", strings.Join(away, ", "))
	}
	return "this replica leads no longer: it stops, or too few replicas answer"
}

// withoutMaster returns how long ago this replica last heard from a master or was one; negative if never. It is
// for display.
func (r *Replica) withoutMaster() time.Duration {
	last := r.raft.LastContact()
	if last.IsZero() {
		return -1
	}
	return elapsed(last)
}

// Pauses between attempts to take over: the first and the longest.
const (
	minTakeOverRetry = 10 * time.Millisecond
	maxTakeOverRetry = 50 * time.Millisecond
)

// takeOver begins the epoch of that term, and retries while Raft leads in it. After two election timeouts of
// failures it gives up with the last error: a passing fault would have passed, and the others would have
// replaced a dead replica.
func (r *Replica) takeOver(ctx context.Context, term uint64) (*master.Master, error) {
	limit := 2 * r.cfg.ElectionTimeout
	var failing <-chan time.Time // since the first failure
	for retry := minTakeOverRetry; ; retry = min(2*retry, maxTakeOverRetry) {
		m, err := r.beginEpoch(ctx, term)
		if err == nil || ctx.Err() != nil || errors.Is(err, identity.ErrRefused) {
			return m, err
		}
		if now, leads := r.leads(); !leads || now != term {
			<-ctx.Done() // runEpochs is about to see it
			return nil, err
		}
		r.log.Warn("elected, but not master yet: trying again", "event", "takeover_fails", "term", term, "error", err)
		if failing == nil {
			failing = time.After(limit)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, err
		case <-failing:
			return nil, fmt.Errorf("tried for %v, and stops so that another is elected; start it again: %w", limit, err)
		}
	}
}

// beginEpoch commits the new epoch. Its entry is applied after everything that earlier masters committed. Their
// uncommitted proposals never commit, or are rejected.
func (r *Replica) beginEpoch(ctx context.Context, term uint64) (*master.Master, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("draw random bytes: %w", err)
	}
	id := api.CellID(r.stores.Identity().Get().Roster.CellID)
	restore := r.restoresAccess()
	level := max(1, r.fsm.State().Level) // the lowest, if nothing is applied yet: the log may have any
	operators, err := r.firstOperators()
	if err != nil {
		return nil, err
	}
	if len(operators) > 0 {
		level = r.cfg.supports // the level of a new cell
	}
	command, err := raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{
		Cell:          r.cfg.Cell,
		CellID:        id,
		Secret:        secret,
		Level:         r.cfg.supports,
		RestoreAccess: restore,
		Operators:     operators,
	}}.Encode(level)
	if err != nil {
		return nil, err
	}
	results, err := master.AppendEntry(r.entries(), api.Epoch(term), r.cfg.Wall(), []raftfsm.Encoded{command})
	if err == nil {
		err = results[0].Answer.Err()
	}
	if restore {
		r.recordRestoredAccess(err)
	}
	if err != nil {
		return nil, err
	}
	state := r.fsm.State()
	if state.Cell != r.cfg.Cell || cmp.Or(state.Origin, state.CellID) != id {
		return nil, identity.Refused("the log in %s is of cell %s with the id %.12s, and the directory of cell %s with the id %.12s: the files are not of one replica. Put back the files that belong together; otherwise %s",
			r.cfg.Data, state.Cell, cmp.Or(state.Origin, state.CellID), r.cfg.Cell, id, identity.LossAdvice)
	}
	if restore {
		r.log.Warn("access restored: the list everyone admits everybody, and the root directory and all lists name it", "event", "access_restored", "epoch", term)
	}
	return r.newMaster(ctx, api.Epoch(term)), nil
}

// restoreWindow is how long after its start a replica may restore access: a forgotten setting must not open the
// cell weeks later.
const restoreWindow = time.Minute

func (r *Replica) restoresAccess() bool {
	if !r.cfg.RestoreAccess {
		return false
	}
	//mutant: if false { //by TestRestoreAccess of ./cell
	if r.clock().Sub(r.begun) > restoreWindow {
		r.log.Warn("access is not restored: this replica has run for too long; start it again with --restore-access if that is wanted, and without if not")
		return false
	}
	return true
}

func (r *Replica) newMaster(ctx context.Context, epoch api.Epoch) *master.Master {
	return master.New(ctx, master.Config{
		Epoch: epoch,
		Cell:  r.cfg.Cell,
		Clock: r.clock,
		State: r.fsm.State,
		Log:   r.entries(),
		Fence: peer.NewFence(peer.FenceConfig{
			Term:  uint64(epoch),
			Self:  r.cfg.ID,
			Raft:  r.raft,
			Ask:   r.prober.Ask,
			Clock: r.clock,
			Hint:  r.masterAddress,
			Ended: r.metrics.proofEnded,
		}),
		Wall:       r.cfg.Wall,
		Logger:     r.log.With("epoch", epoch),
		Metrics:    r.metrics.master,
		SlowClient: r.cfg.SlowClient,
		KeepAlives: r.cfg.KeepAlives,
		MaxWeight:  int64(r.cfg.MaxContentsMiB) << 20,
		Stopwatch:  stopwatch(),
		Phases:     r.times.phases,
	})
}
