package cell

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// master is a replica's mastership in one epoch: what only the master knows,
// and what it does with it. It is made when the epoch has been committed and
// dropped whole when leadership is lost; being master is having one.
//
// What is replicated it reads from state and changes through proposer only.
// Everything else is in the structures below, under one mutex. Commands that
// the log has applied are observed in their order, before their callers go on,
// and observe is the one place where they change what is below.
//
// Its goroutines are the proposer's, the clock loop's, the remover's, and those of
// the calls that are being served.
type master struct {
	epoch   api.Epoch
	cell    string
	cellID  api.CellID
	clock   session.Clock
	state   func() *raftfsm.State
	fence   prover
	sign    signer
	log     *slog.Logger
	metrics *Metrics

	slowClient time.Duration // see Config.SlowClient
	keepAlives float64       // see Config.KeepAlives

	proposer *proposer
	ctx      context.Context // ends with the epoch; its cause is NotMaster
	work     sync.WaitGroup  // the proposer, the clock loop and the remover

	mu      pausingMutex // guards everything below; never held across I/O or a wait, and for maxSteps steps at most
	leases  *session.Leases
	mail    *mail
	boxes   map[api.SessionID]*mailbox
	handles *handles
	queues  *queues
	turns   *turns
	delays  *delays
	losses  *losses
	caches  *caches
	raising map[api.SessionID]bool // sessions whose longest lease is being raised
	outbox  *outbox
	remover *remover

	pages chan struct{} // full when maxPages are being made; see page
}

// prover proves that this replica is still the master: a proof began at t0 and
// not before prove was called, and at t0 no later master had been elected.
type prover interface {
	prove(ctx context.Context) (t0 session.Instant, err error)
}

// start takes over what the log left (Chubby §2.9, step 3): every session's
// lease begins anew at the longest its predecessor may have granted, and every
// lock-delay in full.
func (m *master) start() {
	now, state := m.clock(), m.state()
	m.leases = session.NewLeases()
	m.mail, m.boxes = newMail(m.metrics.eventsDropped), map[api.SessionID]*mailbox{}
	m.outbox, m.raising = newOutbox(), map[api.SessionID]bool{}
	m.handles, m.queues, m.turns, m.delays, m.losses, m.caches = newHandles(), newQueues(m.outbox), newTurns(), newDelays(), newLosses(), newCaches()
	m.remover, m.pages = newRemover(), make(chan struct{}, maxPages)
	m.caches.cleared = m.remover.cleared
	m.mu.Lock() // nobody else has it yet, but what is called below may pause
	defer m.mu.Unlock()
	for s := range state.Sessions.All() {
		m.mu.pause(1)
		m.leases.Start(s.ID, s.Lease, now)
		m.boxes[s.ID] = newMailbox(m.mail, s.Principal)
	}
	for name, d := range state.Tree.Delays() {
		m.delays.start(name, d.ID, d.For, now)
		m.mu.pause(1)
	}
	for node := range state.Tree.All() {
		m.mu.pause(1)
		if node.Dying() {
			m.remover.add(node.Ref())
		}
	}
	m.failedOver()
	m.flushCaches()
	m.resume(state)
	m.work.Go(func() { m.proposer.run(m.ctx) })
	m.work.Go(func() { m.clockLoop(m.ctx) })
	m.work.Go(m.removals)
}

// wait returns when the master's own goroutines have ended; its context must
// have ended before.
func (m *master) wait() { m.work.Wait() }

// observe turns what the log did, or failed to do, into what only the master
// keeps: sessions that are no more, grants and places in queues, delays to
// time, nodes to tell about. The proposer calls it in commit order.
//
// One entry may be much work: the end of many sessions with many handles, or an event
// for very many watchers. So the mutex is released in between (pause), after a
// command and inside of those that may be long, and others see the master when it
// has observed a part of the entry. That is no new case for them. The state has the
// whole entry before anything of it is observed, so everybody has to bear with a
// state that is ahead of what is kept here; and a part of an entry, observed, is what
// an entry with fewer commands would have been. What is kept:
//   - the next entry is applied when all of this one has been observed, so the
//     state stays the same for as long as observe runs;
//   - callers go on when all of the entry has been observed;
//   - a session that has ended loses its lease and its mailbox first, in one hold,
//     so that nothing is entered in its name while the rest of it is being
//     forgotten;
//   - the events of one session are posted in commit order, for only observe
//     posts events of changes.
func (m *master) observe(commands []raftfsm.Command, results []raftfsm.Result, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.metrics.proposed(len(commands), err)
	for i, c := range commands {
		if err != nil {
			m.unproposed(c, inDoubt(err))
		} else {
			m.observeOne(c, results[i])
		}
		m.mu.pause(1)
	}
}

func (m *master) observeOne(c raftfsm.Command, r raftfsm.Result) {
	for _, end := range r.Ended {
		m.sessionEnded(end)
	}
	if c.CreateSession != nil && r.Code == api.OK && m.boxes[r.Session] == nil {
		m.leases.Start(r.Session, c.CreateSession.Lease, m.clock())
		m.boxes[r.Session] = newMailbox(m.mail, c.CreateSession.Principal)
	}
	if c.RaiseLease != nil {
		delete(m.raising, c.RaiseLease.Session)
	}
	if c.Open != nil && r.Code == api.OK && r.Stat != nil {
		m.nodeOpened(c.Open, r.Stat)
	}
	if c.Close != nil && r.Code == api.OK {
		m.handleClosed(namespace.Owner{Session: c.Close.Mutation.Session, Handle: c.Close.Handle})
	}
	for _, claim := range r.Claims {
		if !claim.Pending {
			m.granted(claim)
			m.queues.finish(waiterKey{session: claim.Owner.Session, number: claim.Number}, claim.Answer)
			if claim.Answer.Code == api.OK {
				m.conflictsAlready(claim.Owner, claim.Answer)
			}
			m.mu.pause(m.queues.weight(claim.Answer.Lock.Name))
		}
	}
	if c.Cancel != nil {
		key := waiterKey{session: c.Cancel.Mutation.Session, number: c.Cancel.Mutation.Number}
		if w := m.queues.finish(key, r.Answer); w != nil {
			m.pump(w.lock.Name)
		}
		if r.Code == api.Cancelled { // it may be an Open that needed no entry
			m.handles.close(namespace.Owner{Session: key.session, Handle: api.HandleID(key.number)})
		}
	}
	for _, name := range r.Delayed {
		if d, ok := m.state().Tree.Delay(name); ok {
			m.delays.start(name, d.ID, d.For, m.clock())
			m.log.Info("lock delayed: its holder failed", "lock", name, "for", d.For)
			m.mu.pause(1)
		}
	}
	m.remover.add(r.Dying...)
	for _, change := range r.Changes {
		m.publish(change)
	}
	if c.Delete != nil && len(r.Changes) > 0 {
		m.caches.forgetOwn(c.Delete.Mutation.Session, c.Delete.Node.Name)
	}
	for _, revocation := range r.Revoked {
		m.revoked(revocation)
	}
	for _, id := range r.Terminating {
		m.terminateSession(id)
		m.mu.pause(1)
	}
	m.reoffer(c, false)
	m.vacated(r)
	for _, name := range slices.Concat(r.Free, r.Delayed, joinable(r.Claims)) { // readers may share a lock that readers left delayed
		m.pump(name)
		m.mu.pause(m.queues.weight(name))
	}
}

// joinable returns the locks that were granted in shared mode: there may be more
// who can have them than there was room for in one command.
func joinable(claims []raftfsm.ClaimResult) []api.Name {
	var names []api.Name
	for _, claim := range claims {
		if !claim.Pending && claim.Answer.Code == api.OK && claim.Answer.Mode == api.Shared {
			names = append(names, claim.Answer.Lock.Name)
		}
	}
	return slices.Compact(names)
}

// sessionEnded forgets a session and tells whoever waits in its name. m.mu is held,
// and released in between.
func (m *master) sessionEnded(end raftfsm.Ended) {
	m.leases.Remove(end.Session)
	m.losses.forget(end.Session)
	if box := m.boxes[end.Session]; box != nil {
		box.discard()
		delete(m.boxes, end.Session)
	}
	for !m.handles.drop(end.Session, maxSteps) {
		m.mu.pause(maxSteps)
	}
	for !m.caches.drop(end.Session, maxSteps) {
		m.mu.pause(maxSteps)
	}
	gone := raftfsm.Answer{Code: api.SessionExpired, Message: "the session has ended: " + end.Reason.String()}
	for w := range m.queues.of(end.Session) {
		m.queues.finish(w.key(), gone)
		m.mu.pause(m.queues.weight(w.lock.Name))
	}
	m.metrics.ended(end.Reason)
	level := slog.LevelInfo
	if end.Reason == api.ByClose {
		level = slog.LevelDebug // as most sessions do
	}
	m.log.Log(context.Background(), level, "session ended", "session", end.Session, "reason", end.Reason,
		"principal", end.Principal, "host", end.Host, "pid", end.PID)
}

// inDoubt reports whether an entry that came to that error may be committed yet.
func inDoubt(err error) bool {
	code := api.CodeOf(err)
	return code != api.NotMaster && code != api.Unavailable
}

// unproposed takes note that a command of somebody's was not, or perhaps not (doubt),
// committed: what it was to do is tried again on the next tick.
func (m *master) unproposed(c raftfsm.Command, doubt bool) {
	m.reoffer(c, doubt)
	switch {
	case c.Cancel != nil:
		if w := m.refusing(c.Cancel); w != nil {
			m.outbox.putRequest(w)
		}
	case c.Acquire != nil:
		for _, claim := range c.Acquire.Claims {
			if w := m.queues.get(waiterKey{session: claim.Mutation.Session, number: claim.Mutation.Number}); w != nil {
				m.outbox.putRequest(w)
			}
		}
	case c.EndSessions != nil:
		for _, end := range c.EndSessions.Ends {
			m.endAgain(end)
		}
	case c.RaiseLease != nil:
		delete(m.raising, c.RaiseLease.Session)
	case c.EndDelay != nil:
		m.delays.start(c.EndDelay.Name, c.EndDelay.ID, 0, m.clock())
	case c.Evict != nil:
		m.outbox.putEviction(*c.Evict)
	}
}

// endAgain takes note that a session is to be ended which could not be yet. m.mu is held.
func (m *master) endAgain(end raftfsm.End) {
	if !m.leases.Alive(end.Session) {
		m.outbox.putEnd(end)
	}
}

// enter hands a command to the proposer, and is the only way there. Every command
// is then observed once, or unproposed once: so what was marked for it, a waiter as
// offered, is unmarked in one place, and a command that was refused leaves nothing
// behind. m.mu is held.
func (m *master) enter(one *proposal) error {
	err := m.proposer.enqueue(one)
	if err != nil {
		m.unproposed(one.command, false)
	}
	return err
}

// submit proposes a command of the master's own. m.mu is held.
func (m *master) submit(c raftfsm.Command) { _ = m.enter(newProposal(c, true, nil)) }

// commit proposes a command and waits for its result. after is called when the
// command has been observed, or never will be, and before commit returns, unless
// ctx ends first; it may be nil.
func (m *master) commit(ctx context.Context, c raftfsm.Command, after func()) (raftfsm.Result, error) {
	one := newProposal(c, c.Remove != nil, after)
	m.mu.Lock()
	err := m.enter(one)
	m.mu.Unlock()
	if err != nil {
		one.finish(raftfsm.Result{}, err)
	}
	return one.await(ctx)
}

// propose commits a command for a caller and returns its answer's error, if it
// has one, as the error.
func (m *master) propose(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
	result, err := m.commit(ctx, c, nil)
	return result, cmp.Or(err, m.explain(result.Answer.Err()))
}

// proposeMade is propose of a command that build makes with m.mu held, under which
// it is handed over as well: what it names, as successors, is on its way before
// anybody else looks. It may pause before that.
func (m *master) proposeMade(ctx context.Context, build func() raftfsm.Command) (raftfsm.Result, error) {
	m.mu.LockPatient()
	c := build()
	one := newProposal(c, false, nil)
	err := m.enter(one)
	m.mu.Unlock()
	if err != nil {
		return raftfsm.Result{}, err
	}
	result, err := one.await(ctx)
	return result, cmp.Or(err, m.explain(result.Answer.Err()))
}

// path returns the path of a name in this cell, for people and clients.
func (m *master) path(name api.Name) string { return "/" + api.Root + "/" + m.cell + string(name) }

// explain completes an error of the state machine with what only the master
// knows: who the holders are, and how long a delay has yet to run.
func (m *master) explain(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	for i, h := range e.Holders {
		e.Holders[i] = m.holder(m.state(), namespace.Holder{Owner: namespace.Owner{Session: h.Session}, Reason: h.Reason, SinceUnix: h.SinceUnix})
	}
	return e
}

// holder describes a holder for people.
func (m *master) holder(state *raftfsm.State, h namespace.Holder) api.Holder {
	described := api.Holder{Session: h.Session, Reason: h.Reason, SinceUnix: h.SinceUnix}
	if s, ok := state.Sessions.Get(h.Session); ok {
		described.Principal, described.Host, described.PID = s.Principal, s.Host, s.PID
	}
	return described
}
