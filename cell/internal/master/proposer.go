package master

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// proposer puts an epoch's commands into the Raft log. Commands that arrive while an entry is on its way
// share the next one (group commit). One entry is outstanding at a time: with 64 callers twice as fast as an
// entry for each command, and steady (docs/performance.md); see gather for slow entries.
//
// Commands commit in the order of enqueue. runProposer is its only goroutine.
type proposer struct {
	entries entries
	observe func(batch []*proposal, results []raftfsm.Result, err error)

	wake chan struct{} // full while pending may be non-empty
	turn chan struct{} // full while an entry is on its way or prevented; see pause

	mu      sync.Mutex // guards the fields below
	limits  limits
	pending []*proposal
	bytes   int                   // of pending
	shares  map[api.SessionID]int // of pending, by session
	away    map[api.SessionID]int // commands that a slow entry answered, less those that have come since; see gather
	missing int                   // their sum
	closed  error                 // why nothing more is accepted
}

type proposal struct {
	command raftfsm.Command
	encoded raftfsm.Encoded
	refused error           // why it cannot be encoded
	own     bool            // the master's own: a quarter of the room is only for these
	by      api.SessionID   // session of the request, if there is one
	request steps.RequestID // the client's ID; 0 if it is the master's own
	done    chan struct{}   // closed once result and err are set
	result  raftfsm.Result
	err     error
	after   func() // called once it is observed or never will be; may be nil

	queued session.Instant   // when handed over
	entry  *steps.EntryTimes // valid once done is closed; nil if it was in none
}

// newProposal encodes a command for a state of that level. after, which may be nil, is called once it is
// observed or never will be.
func newProposal(c raftfsm.Command, level int, own bool, after func()) *proposal {
	one := &proposal{command: c, own: own, by: c.By(), done: make(chan struct{}), after: after}
	one.encoded, one.refused = c.Encode(level)
	return one
}

func newProposer(n entries, observe func([]*proposal, []raftfsm.Result, error)) *proposer {
	return &proposer{
		entries: n, observe: observe, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		limits: defaultLimits(), shares: map[api.SessionID]int{},
	}
}

// await returns a command's result. An error of code Uncertain means that it may have been done, or may yet
// be; any other, that it was not. The end of ctx does not stop it.
func (one *proposal) await(ctx context.Context) (raftfsm.Result, error) {
	select {
	case <-one.done:
		return one.result, one.err
	default:
	}
	select {
	case <-one.done:
		return one.result, one.err
	case <-ctx.Done():
		return raftfsm.Result{}, &api.Error{Code: api.Uncertain, Message: "the call ended before its change was committed; a retry with the same request number finds out", Err: context.Cause(ctx)}
	}
}

// enqueue appends a proposal to pending, or returns why not. An accepted one is always observed.
func (p *proposer) enqueue(one *proposal) error {
	if one.refused != nil {
		return one.refused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	if err := p.checkRoom(one); err != nil {
		return err
	}
	p.pending = append(p.pending, one)
	p.account(one, 1)
	if p.away[one.by] > 0 {
		p.away[one.by]--
		p.missing--
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

func (p *proposer) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

// checkRoom returns why a proposal cannot wait or be written here. A quarter of the room is for the master's
// commands, which hand over locks and end sessions. p.mu is held.
func (p *proposer) checkRoom(one *proposal) error {
	size, number, bytes := len(one.encoded), maxPending, p.limits.pending
	if !one.own {
		number, bytes = number*3/4, bytes*3/4
	}
	switch {
	case size > p.limits.command:
		return api.Errorf(api.TooLarge, "the change takes %d bytes in the log, and at most %d are allowed; ask for less at a time", size, p.limits.command)
	case len(p.pending) >= number || p.bytes+size > bytes:
		return api.Errorf(api.Unavailable, "the master has %d changes of %d bytes waiting to be committed; try again", len(p.pending), p.bytes)
	case !one.own && one.by != 0 && p.shares[one.by]+size > p.limits.share:
		return api.Errorf(api.Unavailable, "changes of session %v waiting to be committed have %d bytes, and at most %d are allowed; wait for some answers, then try again", one.by, p.shares[one.by], p.limits.share)
	}
	return nil
}

// account adds (sign 1) or subtracts (-1) a proposal's size. p.mu is held.
func (p *proposer) account(one *proposal, sign int) {
	n := sign * len(one.encoded)
	p.bytes += n
	if one.by == 0 {
		return
	}
	if p.shares[one.by] += n; p.shares[one.by] == 0 {
		delete(p.shares, one.by)
	}
}

// runProposer commits batches until ctx ends; close refuses the rest.
func (p *proposer) runProposer(ctx context.Context) {
	defer p.close(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for more := true; more; {
			resume, err := p.pause(ctx)
			if err != nil {
				return
			}
			batch := p.takeBatch() // only in a turn: each taken command is committed, and answered
			took := time.Duration(0)
			if more = len(batch) > 0; more {
				took = p.commit(batch)
			}
			resume()
			p.gather(ctx, took)
		}
	}
}

// pause waits until no entry is on its way, and prevents new ones until resume; commands wait in order. The
// error is ctx's.
func (p *proposer) pause(ctx context.Context) (resume func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close refuses all pending and later commands, with the cause of ctx.
func (p *proposer) close(ctx context.Context) {
	p.mu.Lock()
	p.closed = context.Cause(ctx)
	left := p.pending
	p.pending, p.bytes, p.shares = nil, 0, nil
	p.mu.Unlock()
	if len(left) > 0 {
		p.observe(left, nil, p.closed)
	}
	for _, one := range left {
		one.finish(raftfsm.Result{}, p.closed)
	}
}

func (p *proposer) takeBatch() []*proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(p.pending) && n < api.MaxBatch {
		bytes += len(p.pending[n].encoded)
		if n > 0 && bytes > p.limits.batch {
			break
		}
		p.account(p.pending[n], -1)
		n++
	}
	batch := p.pending[:n:n]
	p.pending = p.pending[n:]
	if len(p.pending) == 0 {
		p.pending = nil
	}
	return batch
}

// commit puts a batch into the log, waits until it is applied, has it observed, and then releases the
// callers: the tables then have its results. It returns how long the entry took.
func (p *proposer) commit(batch []*proposal) (took time.Duration) {
	began := p.entries.clock()
	encoded := make([]raftfsm.Encoded, len(batch))
	for i, one := range batch {
		encoded[i] = one.encoded
	}
	results, err := p.entries.append(encoded)
	p.observe(batch, results, err)
	took = p.entries.clock().Sub(began)
	p.expect(batch, took)
	for i, one := range batch {
		one.entry = p.entries.last
		if err != nil {
			one.finish(raftfsm.Result{}, err)
			continue
		}
		one.finish(results[i], nil)
	}
	return took
}

func (one *proposal) finish(r raftfsm.Result, err error) {
	if one.after != nil {
		one.after()
	}
	one.result, one.err = r, err
	close(one.done)
}

// handOver hands a command to the proposer; nothing else does. Each command is then observed once, or
// unproposed once. So one place unmarks its waiters, also after a refusal. epoch.mu is held.
func (e *epoch) handOver(one *proposal) error {
	one.queued = e.clock()
	err := e.proposer.enqueue(one)
	if err != nil {
		//mutant: _ = e.unproposed
		e.unproposed(one.command, false)
	}
	return err
}

// submit proposes the master's own command. epoch.mu is held.
func (e *epoch) submit(c raftfsm.Command) { _ = e.handOver(newProposal(c, e.state().Level, true, nil)) }

// commit proposes a command and waits for its result. It calls after, which may be nil, once the command is
// observed or never will be; before it returns, unless ctx ends first.
func (e *epoch) commit(ctx context.Context, c raftfsm.Command, after func()) (raftfsm.Result, error) {
	one := newProposal(c, e.state().Level, c.Remove != nil, after)
	one.request = steps.RequestOf(ctx)
	e.mu.Lock()
	err := e.handOver(one)
	e.mu.Unlock()
	if err != nil {
		one.finish(raftfsm.Result{}, err)
	}
	return e.await(ctx, one)
}

// propose is commit, with an error of the answer as its error.
func (e *epoch) propose(ctx context.Context, c raftfsm.Command, after func()) (raftfsm.Result, error) {
	result, err := e.commit(ctx, c, after)
	return result, cmp.Or(err, result.Answer.Err())
}

// await is proposal.await, and tells the call what it waited for.
func (e *epoch) await(ctx context.Context, one *proposal) (raftfsm.Result, error) {
	result, err := one.await(ctx)
	now := e.clock()
	if call := steps.Told(ctx, now.Sub(one.queued)); call != nil {
		var by *steps.EntryTimes
		if err == nil || ctx.Err() == nil { // else the proposer may still change one
			by = one.entry
		}
		for _, step := range by.Steps(one.queued, now, err) {
			call.Step(step)
		}
	}
	return result, err
}

// refuseAs is refuseThen for a refusal about the request itself.
func (e *epoch) refuseAs(ctx context.Context, by session.Mutation, r *refusal.Refusal, after func()) (raftfsm.Result, error) {
	return e.propose(ctx, raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: by, Refusal: r}}, after)
}

// Log is the replicated log, as a master needs it.
type Log interface {
	// Append puts an entry into the log, and returns its commands' results once it is applied. After an error
	// of code NotMaster the entry is not in the log, nor ever will be; after any other it may.
	Append(entry []byte) ([]raftfsm.Result, error)
}

// entries puts an epoch's entries into the log, one at a time, in a turn of the proposer (proposer.turn).
type entries struct {
	log   Log
	epoch api.Epoch
	wall  func() int64

	clock  session.Clock
	phases func() steps.Phases // of the last applied entry
	last   *steps.EntryTimes   // the newest; nil before the first
}

// append is AppendEntry, timed.
func (n *entries) append(commands []raftfsm.Encoded) ([]raftfsm.Result, error) {
	now := &steps.EntryTimes{Commands: len(commands), From: n.clock()}
	results, err := AppendEntry(n.log, n.epoch, n.wall(), commands)
	if err == nil {
		now.Phases = n.phases()
	}
	n.last = now
	return results, err
}

// AppendEntry puts commands into the log as one entry, and returns their results.
func AppendEntry(log Log, epoch api.Epoch, wall int64, commands []raftfsm.Encoded) ([]raftfsm.Result, error) {
	results, err := log.Append(raftfsm.JoinEntry(epoch, wall, commands))
	if err == nil && len(results) != len(commands) {
		return nil, api.Errorf(api.Uncertain, "the entry's results are missing")
	}
	return results, err
}
