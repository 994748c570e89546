package master

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Config configures a master. The last five fields are optional.
type Config struct {
	Epoch   api.Epoch
	Cell    string
	Clock   session.Clock
	State   func() *raftfsm.State // as of the last entry applied
	Log     Log
	Fence   prover
	Wall    func() int64 // seconds since 1970, for display
	Logger  *slog.Logger
	Metrics Metrics

	SlowClient time.Duration        // cuts off clients that delay a change for longer; 0: none
	KeepAlives float64              // max wanted per second
	MaxWeight  int64                // of the tree, see checkRoom; 0: no bound
	Stopwatch  func() time.Duration // measures how long the mutex is held; may be nil
	Phases     func() steps.Phases  // of the last entry that Log.Append returned; may be nil
}

// Master is a replica's mastership in one epoch: what only the master knows and does. It is made when the
// epoch has been committed, and dropped when leadership is lost.
//
// It reads replicated data from the state, and changes it only through the proposer. All else is in tables,
// under one mutex. The observer observes applied commands in order, before callers go on; only there do
// commands change the tables.
//
// Wait waits for the master's own goroutines, not for calls.
type Master struct {
	epoch       *epoch
	tables      *tables.Tables
	Sessions    *Sessions
	Files       *Files
	Locks       *Locks
	Inspector   *Inspector
	events      *publisher
	coherence   *coherence
	revocations *revocations
	remover     *remover
	timekeeper  *timekeeper
	work        sync.WaitGroup // the journal, the proposer, the timekeeper, the remover and the check points
}

// New makes a master; Start starts it. ctx ends with the epoch, with cause NotMaster.
func New(ctx context.Context, cfg Config) *Master {
	if cfg.Phases == nil {
		cfg.Phases = func() steps.Phases { return steps.Phases{} }
	}
	e := &epoch{
		number: cfg.Epoch,
		cell:   cfg.Cell,
		clock:  cfg.Clock,
		state:  cfg.State,
		fence:  cfg.Fence,
		ctx:    ctx,
		mu:     pausingMutex{watch: cfg.Stopwatch, held: cfg.Metrics.MutexHeld, passed: passedHolds},
	}
	e.reports = newReports(e, cfg.Metrics, cfg.Logger)
	t := tables.New(cfg.Metrics.EventDropped, defaultLimits().claims)
	events := &publisher{epoch: e, boxes: t.Boxes, handles: t.Handles, queues: t.Queues, recalls: t.Recalls, copyset: t.Copyset}
	out := &offers{epoch: e, queues: t.Queues, delays: t.Delays, outbox: t.Outbox, events: events}
	lost := newRevocations(e, t, events, out)
	coherent := &coherence{epoch: e, copyset: t.Copyset, boxes: t.Boxes, leases: t.Leases, revocations: lost, slowClient: cfg.SlowClient, maxWeight: cfg.MaxWeight}
	graph := &waitGraph{epoch: e, queues: t.Queues, offers: out, known: t.Handles.Find}
	gone := newRemover(e, t.Queues, coherent)
	sessions := &Sessions{
		epoch: e, leases: t.Leases, boxes: t.Boxes, copyset: t.Copyset, recalls: t.Recalls, outbox: t.Outbox, offers: out, revocations: lost,
		raising: map[api.SessionID]bool{}, keepAlives: cfg.KeepAlives,
	}
	files := &Files{
		epoch: e, handles: t.Handles, boxes: t.Boxes, queues: t.Queues, events: events, offers: out, coherence: coherent,
	}
	locks := &Locks{
		epoch: e, queues: t.Queues, holdTimes: e.reports.holdTimes, delays: t.Delays, outbox: t.Outbox,
		events: events, offers: out, graph: graph, sessions: sessions, files: files,
	}
	inspector := &Inspector{
		epoch: e, tables: t, sessions: sessions, locks: locks, pages: make(chan struct{}, maxPages),
		Backups: &Backups{epoch: e, wall: cfg.Wall, open: map[backupKey]*takenBackup{}},
	}
	observed := &observer{
		epoch: e, tables: t, events: events, offers: out, revocations: lost, remover: gone, sessions: sessions, files: files, locks: locks,
	}
	e.unproposed = observed.unproposed
	e.proposer = newProposer(entries{log: cfg.Log, epoch: cfg.Epoch, wall: cfg.Wall, clock: cfg.Clock, phases: cfg.Phases}, observed.observe)
	inspector.CheckPoints = newCheckPoints(e)
	inspector.Backups.begun = inspector.CheckPoints.Soon
	return &Master{
		epoch:       e,
		tables:      t,
		Sessions:    sessions,
		Files:       files,
		Locks:       locks,
		Inspector:   inspector,
		events:      events,
		coherence:   coherent,
		revocations: lost,
		remover:     gone,
		timekeeper:  &timekeeper{epoch: e, tables: t, offers: out, revocations: lost, sessions: sessions, coherence: coherent, graph: graph, pauses: newPauses(e.clock), restoreDue: never},
	}
}

// Start takes over what the log left (Chubby §2.9, step 3). Leases begin anew, at the max length that a
// predecessor may have granted; lock-delays begin again in full.
func (m *Master) Start() {
	now, _ := m.timekeeper.pauses.take() // the time until now passed before any lease began
	state := m.epoch.state()
	mu := m.epoch.mu.hold() // no other goroutine has it yet, but calls below may pause
	defer mu.end()
	m.epoch.reports.usages.began = now
	for s := range state.Sessions.All() {
		mu.pause(1)
		//mutant: m.tables.Leases.Inherit(s.ID, s.Asked, now) //by TestTakeoverHonoursLongLeases of ./cell
		m.tables.Leases.Inherit(s.ID, s.Lease, now)
		m.tables.Boxes.Add(s.ID, s.Principal)
		m.epoch.reports.sessionInherited(s.ID, now)
	}
	for name, d := range state.Tree.Delays() {
		m.tables.Delays.Start(name, d.ID, d.For, now)
		mu.pause(1)
	}
	for node := range state.Tree.All() {
		mu.pause(1)
		if node.Dying() {
			m.remover.add(node.Ref())
		}
	}
	m.events.tellFailOver(mu)
	m.coherence.beginFlush()
	m.revocations.resumeRevocations(mu, state)
	m.work.Go(func() { m.epoch.reports.journal.run(m.epoch.ctx) })
	m.work.Go(func() { m.epoch.proposer.runProposer(m.epoch.ctx) })
	m.work.Go(func() {
		m.timekeeper.clockLoop(m.epoch.ctx)
		m.Sessions.endCalls()
	})
	m.work.Go(func() { m.timekeeper.pauses.watch(m.epoch.ctx) })
	m.work.Go(m.remover.runRemover)
	m.work.Go(func() { m.Inspector.CheckPoints.run(m.epoch.ctx) })
}

// Wait ends all proofs of leadership, and returns when the master's goroutines have ended. The end of ctx
// comes first.
func (m *Master) Wait() {
	m.epoch.fence.Close(context.Cause(m.epoch.ctx))
	m.Inspector.Backups.close()
	m.work.Wait()
	m.epoch.reports.journal.flush()
}

// Pause waits until no entry is on its way to the log, and prevents new ones until resume. The error is
// ctx's.
func (m *Master) Pause(ctx context.Context) (resume func(), err error) {
	return m.epoch.proposer.pause(ctx)
}

// RaiseLevel raises the cell's feature level. The caller has checked that every replica knows it.
func (m *Master) RaiseLevel(ctx context.Context, c raftfsm.RaiseLevel) error {
	_, err := m.epoch.propose(ctx, raftfsm.Command{RaiseLevel: &c}, nil)
	if err == nil {
		m.epoch.reports.journal.say(slog.LevelInfo, "feature level raised", slog.String("event", "level_raised"), slog.Int("feature_level", c.To))
	}
	return err
}

// ChangeMembers decides on a change of the replicas; the replica carries it out.
func (m *Master) ChangeMembers(ctx context.Context, c raftfsm.ChangeMembers) error {
	_, err := m.epoch.propose(ctx, raftfsm.Command{ChangeMembers: &c}, nil)
	if err == nil {
		attrs := []slog.Attr{slog.String("event", "members_change")}
		if c.Add != nil {
			attrs = append(attrs, slog.String("added", c.Add.ID))
		}
		removed := c.Remove
		if c.Add != nil {
			removed = cmp.Or(removed, c.Add.Replaces)
		}
		if removed != "" {
			attrs = append(attrs, slog.String("removed", removed))
		}
		if c.Keep != "" {
			attrs = append(attrs, slog.String("kept", c.Keep))
		}
		m.epoch.reports.journal.say(slog.LevelInfo, "a change of the replicas was decided", attrs...)
	}
	return err
}

// SettleMember records that a replica has joined or left, or a spare has replaced one. It reports whether
// that holds: a command that comes too late, after another change, has no effect.
func (m *Master) SettleMember(ctx context.Context, c raftfsm.SettleMember) (settled bool, err error) {
	if _, err := m.epoch.propose(ctx, raftfsm.Command{SettleMember: &c}, nil); err != nil {
		return false, err
	}
	now, ok := m.epoch.state().Roster.Find(c.ID)
	if !ok || now.Phase == c.Phase || c.Replaces != "" && now.Replaces != c.Replaces {
		return false, nil
	}
	m.epoch.reports.journal.say(slog.LevelInfo, "the change of a replica is complete",
		slog.String("event", "member_settled"), slog.String("member", c.ID), slog.String("phase", c.Phase.String()))
	return true, nil
}

// SetQuota changes the quota of a principal or of a directory.
func (m *Master) SetQuota(ctx context.Context, c raftfsm.SetQuota) error {
	_, err := m.epoch.propose(ctx, raftfsm.Command{SetQuota: &c}, nil)
	return err
}

// Restore does one step of restoring the cell from a backup. It finishes when all other sessions have ended;
// until then it proposes nothing, and returns their number.
func (m *Master) Restore(ctx context.Context, c raftfsm.Restore) (restored bool, sessions int, err error) {
	state := m.epoch.state()
	if by, sealed := state.Restoring(); c.Finish && sealed && by == c.Mutation.Session && state.Sessions.Len() > 1 {
		m.timekeeper.restoreStepped()
		return false, state.Sessions.Len() - 1, nil
	}
	if full := m.coherence.checkRestore(c); full != nil && !m.epoch.isAnswered(c.Mutation) {
		_, err := m.epoch.refuseAs(ctx, c.Mutation, full, nil)
		return false, 0, err
	}
	_, err = m.epoch.propose(ctx, raftfsm.Command{Restore: &c}, nil)
	if err == nil {
		m.timekeeper.restoreStepped()
	}
	return err == nil && c.Finish, 0, err
}

// GiveUpRestore gives up the restore of a session, for an operator known by its connection: there may be no
// other session. It names the session, so that a retry after a lost answer gives up no other restore.
func (m *Master) GiveUpRestore(ctx context.Context, principal string, of api.SessionID) error {
	if _, err := m.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	state := m.epoch.state()
	if err := state.PermitOperator(principal); err != nil {
		return err
	}
	by, _ := state.Restoring()
	if by == 0 || by != of {
		return api.Errorf(api.NotFound, "no backup is being restored; see chubbyctl cell status")
	}
	_, err := m.epoch.propose(ctx, raftfsm.Command{Restore: &raftfsm.Restore{GiveUp: true, Of: by, Operator: principal}}, nil)
	return err
}
