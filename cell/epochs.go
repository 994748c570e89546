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
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// epochs follows Raft's elections: it makes this replica the master while it leads.
type epochs struct {
	*mastership
	metrics   *metrics
	begun     session.Instant // when the replica started
	elections chan bool       // Raft reports here that it leads, or no longer leads
	ended     chan struct{}   // closed when run has ended
	times     *entryTimes
}

// run begins an epoch when this replica leads Raft, and ends it when it no longer leads.
//
// A message in elections only says that something has changed: several may be queued, and Raft may have moved
// on. So run checks Raft's current state, and begins at most one epoch a term. Raft blocks on that channel, so
// only the select waits here.
func (e *epochs) run(ctx context.Context) {
	defer close(e.ended)
	var begun uint64 // the latest term in which an epoch began
	var running epochRun
	for {
		select {
		case <-ctx.Done():
			if running.end != nil {
				<-running.ended
			}
			return
		case <-e.elections:
		case <-running.ended:
			running = epochRun{}
		}
		term, leads := e.leads()
		switch {
		//mutant: case running.end != nil: //by TestOldNewsBeginNoEpoch of ./cell
		case running.end != nil && (!leads || term != begun):
			running.end(e.notMaster())
		case running.end == nil && leads && term > begun:
			begun, running = term, e.startEpoch(ctx, term)
		}
	}
}

type epochRun struct {
	end   context.CancelCauseFunc // ends the epoch; nil without one
	ended chan struct{}           // closed when all of it has ended
}

func (e *epochs) startEpoch(ctx context.Context, term uint64) epochRun {
	ctx, end := context.WithCancelCause(ctx)
	run := epochRun{end: end, ended: make(chan struct{})}
	go func() {
		defer close(run.ended)
		defer end(nil)
		e.runEpoch(ctx, term)
	}()
	return run
}

// runEpoch runs one epoch, from its first entry to its last goroutine (Chubby §2.9). A replica that leads Raft
// and cannot become master ends itself, since no other is elected while it leads. In an outage it does so on
// purpose, and runEpoch waits for the end.
func (e *epochs) runEpoch(leading context.Context, term uint64) {
	began, vacant := e.clock(), e.withoutMaster()
	ctx, end := context.WithCancelCause(leading)
	defer end(nil)
	m, err := e.takeOver(ctx, term)
	switch {
	case ctx.Err() != nil:
		e.log.Debug("elected, and deposed before the epoch began", "term", term, "error", err)
		return
	case err != nil:
		e.fatal(fmt.Errorf("replica %s leads in term %d and cannot become the master: %w", e.cfg.ID, term, err))
		return
	}
	applied, sessions := e.clock(), e.fsm.State().Sessions.Len()
	e.metrics.master.takeovers.began(m.Epoch(), sessions, vacant, began)
	m.Start()
	took := e.metrics.master.takeovers.nowServes()
	e.master.Store(m)
	serving := e.clock()
	e.log.Info("master", "event", "master_began", "epoch", m.Epoch(), "sessions", sessions, "took", took,
		"phase_log", applied.Sub(began), "phase_leases", took-applied.Sub(began))
	e.warnOfOperators()
	select {
	case <-ctx.Done():
	case o := <-e.outages.asked:
		defer e.outages.withhold(leading, o)
		end(e.outages.begin(o, m.Epoch()))
	}
	e.master.Store(nil)
	e.metrics.master.takeovers.ended()
	m.Wait()
	e.log.Info("not master any more", "event", "master_ended", "epoch", m.Epoch(), "reason", e.whyEnded(context.Cause(ctx), term), "served", e.clock().Sub(serving))
}

// whyEnded returns why the epoch of that term has ended. Clients get cause, which only says where to ask.
func (e *epochs) whyEnded(cause error, term uint64) string {
	now, leads := e.leads()
	switch away := e.transport.Unanswering(); {
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
func (e *epochs) withoutMaster() time.Duration {
	last := e.raft.LastContact()
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
func (e *epochs) takeOver(ctx context.Context, term uint64) (*master.Master, error) {
	limit := 2 * e.cfg.ElectionTimeout
	var failing <-chan time.Time // since the first failure
	for retry := minTakeOverRetry; ; retry = min(2*retry, maxTakeOverRetry) {
		m, err := e.beginEpoch(ctx, term)
		if err == nil || ctx.Err() != nil || errors.Is(err, identity.ErrRefused) {
			return m, err
		}
		if now, leads := e.leads(); !leads || now != term {
			<-ctx.Done() // run is about to see it
			return nil, err
		}
		e.log.Warn("elected, but not master yet: trying again", "event", "takeover_fails", "term", term, "error", err)
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
func (e *epochs) beginEpoch(ctx context.Context, term uint64) (*master.Master, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("draw random bytes: %w", err)
	}
	id := api.CellID(e.stores.Identity().Get().Roster.CellID)
	restore := e.restoresAccess()
	level := max(1, e.fsm.State().Level) // the lowest, if nothing is applied yet: the log may have any
	operators, err := e.firstOperators()
	if err != nil {
		return nil, err
	}
	if len(operators) > 0 {
		level = e.cfg.supports // the level of a new cell
	}
	command, err := raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{
		Cell:          e.cfg.Cell,
		CellID:        id,
		Secret:        secret,
		Level:         e.cfg.supports,
		RestoreAccess: restore,
		Operators:     operators,
	}}.Encode(level)
	if err != nil {
		return nil, err
	}
	results, err := master.AppendEntry(e.proposals(), api.Epoch(term), e.cfg.Wall(), []raftfsm.Encoded{command})
	if err == nil {
		err = results[0].Answer.Err()
	}
	if restore {
		e.recordRestoredAccess(err)
	}
	if err != nil {
		return nil, err
	}
	state := e.fsm.State()
	if state.Cell != e.cfg.Cell || cmp.Or(state.Origin, state.CellID) != id {
		return nil, identity.Refused("the log in %s is of cell %s with the id %.12s, and the directory of cell %s with the id %.12s: the files are not of one replica. Put back the files that belong together; otherwise %s",
			e.cfg.Data, state.Cell, cmp.Or(state.Origin, state.CellID), e.cfg.Cell, id, identity.LossAdvice)
	}
	if restore {
		e.log.Warn("access restored: the list everyone admits everybody, and the root directory and all lists name it", "event", "access_restored", "epoch", term)
	}
	return e.newMaster(ctx, api.Epoch(term)), nil
}

// firstOperators returns the operators if this epoch begins the cell. It applies all of the log first to know
// that.
func (e *epochs) firstOperators() ([]string, error) {
	if len(e.cfg.Operators) == 0 || e.fsm.State().Cell != "" || e.cfg.supports < raftfsm.OperatorsLevel {
		return nil, nil
	}
	if err := e.raft.Barrier(2 * e.cfg.ElectionTimeout).Error(); err != nil {
		return nil, fmt.Errorf("apply the log: %w", err)
	}
	if e.fsm.State().Cell != "" {
		return nil, nil
	}
	return e.cfg.Operators, nil
}

// restoreWindow is how long after its start a replica may restore access: a forgotten setting must not open the
// cell weeks later.
const restoreWindow = time.Minute

func (e *epochs) restoresAccess() bool {
	if !e.cfg.RestoreAccess {
		return false
	}
	//mutant: if false { //by TestRestoreAccess of ./cell
	if e.clock().Sub(e.begun) > restoreWindow {
		e.log.Warn("access is not restored: this replica has run for too long; start it again with --restore-access if that is wanted, and without if not")
		return false
	}
	return true
}

// recordRestoredAccess records that this replica restored access to the ACLs, by an operator of the machine and
// no call.
func (e *epochs) recordRestoredAccess(err error) {
	record := audit.Record{Call: "RestoreAccess", On: "/ls/" + e.cfg.Cell, Reason: "it was started with --restore-access", Code: api.CodeOf(err).String()}
	switch api.CodeOf(err) {
	case api.OK:
	case api.Uncertain:
		record.Message = audit.NotKnown + err.Error()
	default:
		return // nothing was done
	}
	e.audit.Act(record)
}

func (e *epochs) newMaster(ctx context.Context, epoch api.Epoch) *master.Master {
	return master.New(ctx, master.Config{
		Epoch: epoch,
		Cell:  e.cfg.Cell,
		Clock: e.clock,
		State: e.fsm.State,
		Log:   e.proposals(),
		Fence: peer.NewFence(peer.FenceConfig{
			Term:  uint64(epoch),
			Self:  e.cfg.ID,
			Raft:  e.raft,
			Ask:   e.prober.Ask,
			Clock: e.clock,
			Hint:  e.masterAddress,
			Ended: e.metrics.proofEnded,
		}),
		Wall:       e.cfg.Wall,
		Logger:     e.log.With("epoch", epoch),
		Metrics:    e.metrics.master,
		SlowClient: e.cfg.SlowClient,
		KeepAlives: e.cfg.KeepAlives,
		MaxWeight:  int64(e.cfg.MaxContentsMiB) << 20,
		Stopwatch:  stopwatch(),
		Phases:     e.times.phases,
	})
}

func (e *epochs) proposals() master.Log {
	log := entryLog{e.raft, e.metrics.entrySized, e.times}
	if e.cfg.proposeTo != nil {
		return e.cfg.proposeTo(log)
	}
	return log
}

// warnOfOperators warns of a cell where clients have names and no list names operators: it began before level
// 3, or insecure.
func (e *epochs) warnOfOperators() {
	state := e.fsm.State()
	if e.cfg.ClientTLS == (TLSFiles{}) || state.HasOperators() {
		return
	}
	advice := fmt.Sprintf("make the list: chubbyctl acl file put /ls/%s/acl/operators PRINCIPAL; see docs/operations.md, \"After an upgrade from v0.1.0\"", e.cfg.Cell)
	if state.Level < raftfsm.OperatorsLevel {
		advice = "finish the upgrade of the cell (chubbyctl cell upgrade status); then " + advice
	}
	if len(e.cfg.Operators) > 0 {
		advice += fmt.Sprintf(". The key operators of the configuration (%s) is for a cell that begins, and is not used", strings.Join(e.cfg.Operators, ", "))
	}
	e.log.Warn("this cell has no list of operators: all clients may do what is for operators, and say who may do what, unless the ACL of the root forbids it",
		"event", "operators_missing", "advice", advice)
}
