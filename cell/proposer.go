package cell

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// proposer puts the commands of one epoch into the Raft log. Commands that
// arrive while an entry is on its way wait and go into the next one together
// (group commit): one entry is outstanding at a time, which at 64 callers is
// twice as fast as an entry for each command, and steady (docs/performance.md).
//
// Commands commit in the order in which they were handed over. run is its one
// goroutine.
type proposer struct {
	raft    applier
	epoch   api.Epoch
	wall    func() int64
	observe func([]raftfsm.Command, []raftfsm.Result, error)

	wake chan struct{} // holds a token while pending may be non-empty
	turn chan struct{} // full while an entry is on its way, or none may be; see pause

	mu      sync.Mutex // guards the fields below
	pending []*proposal
	closed  error // why nothing more is taken
}

// applier is the part of Raft that a proposer needs.
type applier interface {
	Apply(data []byte, timeout time.Duration) raft.ApplyFuture
}

type proposal struct {
	command raftfsm.Command
	size    int
	done    chan outcome // nil if nobody waits
	after   func()       // called once it is observed, or never will be; may be nil
}

type outcome struct {
	result raftfsm.Result
	err    error
}

// maxPending bounds the commands that wait for their entry.
const maxPending = 64 * api.MaxBatch

func newProposer(r applier, epoch api.Epoch, wall func() int64, observe func([]raftfsm.Command, []raftfsm.Result, error)) *proposer {
	return &proposer{raft: r, epoch: epoch, wall: wall, observe: observe, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// propose commits a command and returns what it did. An error of code
// Uncertain means that it may have been done, or may yet be; any other that it
// was not. If ctx ends first the command goes its way all the same; after, if it
// is not nil, is called when the command has been observed, or never will be, and
// before propose returns an answer.
func (p *proposer) propose(ctx context.Context, c raftfsm.Command, after func()) (raftfsm.Result, error) {
	done := make(chan outcome, 1)
	if err := p.enqueue(&proposal{command: c, size: size(c), done: done, after: after}); err != nil {
		if after != nil {
			after()
		}
		return raftfsm.Result{}, err
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return raftfsm.Result{}, &api.Error{Code: api.Uncertain, Message: "the call ended before its change was committed; a retry with the same request number finds out", Err: context.Cause(ctx)}
	}
}

// submit hands over a command of the master's own and reports whether it was
// taken. What it does reaches the master through observe.
func (p *proposer) submit(c raftfsm.Command) bool {
	return p.enqueue(&proposal{command: c, size: size(c)}) == nil
}

func (p *proposer) enqueue(one *proposal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	if len(p.pending) >= maxPending {
		return api.Errorf(api.Unavailable, "the master has %d changes waiting to be committed; try again", len(p.pending))
	}
	p.pending = append(p.pending, one)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// run commits batches until ctx ends; what is still waiting then is refused.
func (p *proposer) run(ctx context.Context) {
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
			batch := p.take() // only in a turn: what is taken is committed, and so answered
			if more = len(batch) > 0; more {
				p.commit(batch)
			}
			resume()
		}
	}
}

// pause waits until no entry is on its way, and keeps it so until resume is
// called; commands wait meanwhile, in their order. The error is ctx's.
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

// close refuses what waits and what may still come, with the cause of ctx.
func (p *proposer) close(ctx context.Context) {
	p.mu.Lock()
	p.closed = context.Cause(ctx)
	left := p.pending
	p.pending = nil
	p.mu.Unlock()
	for _, one := range left {
		one.finish(raftfsm.Result{}, p.closed)
	}
}

// take removes the next batch from the queue.
func (p *proposer) take() []*proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(p.pending) && n < api.MaxBatch {
		bytes += p.pending[n].size
		if n > 0 && bytes > api.MaxBatchBytes {
			break
		}
		n++
	}
	batch := p.pending[:n:n]
	p.pending = p.pending[n:]
	if len(p.pending) == 0 {
		p.pending = nil
	}
	return batch
}

// commit puts a batch into the log, waits until it is applied, lets the master
// observe it, and only then releases the callers: when a caller goes on, the
// master knows what its call has done.
func (p *proposer) commit(batch []*proposal) {
	commands := make([]raftfsm.Command, len(batch))
	for i, one := range batch {
		commands[i] = one.command
	}
	results, err := p.apply(raftfsm.Entry{Epoch: p.epoch, Wall: p.wall(), Commands: commands})
	p.observe(commands, results, err)
	for i, one := range batch {
		if err != nil {
			one.finish(raftfsm.Result{}, err)
			continue
		}
		one.finish(results[i], nil)
	}
}

func (p *proposer) apply(e raftfsm.Entry) ([]raftfsm.Result, error) {
	data, err := raftfsm.EncodeEntry(e)
	if err != nil {
		return nil, err
	}
	future := p.raft.Apply(data, 0)
	if err := future.Error(); err != nil {
		return nil, proposalError(err)
	}
	switch response := future.Response().(type) {
	case []raftfsm.Result:
		if len(response) == len(e.Commands) {
			return response, nil
		}
	case error:
		return nil, &api.Error{Code: api.Corrupt, Message: "the entry could not be applied", Err: response}
	}
	return nil, api.Errorf(api.Uncertain, "the entry's results are missing")
}

func (one *proposal) finish(r raftfsm.Result, err error) {
	if one.after != nil {
		one.after()
	}
	if one.done != nil {
		one.done <- outcome{result: r, err: err}
	}
}

// proposalError says what can be concluded from an error of raft.Apply: those
// listed are returned before the entry is appended; after any other it may be
// in the log, and may yet commit.
func proposalError(err error) error {
	for _, no := range []error{raft.ErrNotLeader, raft.ErrEnqueueTimeout, raft.ErrLeadershipTransferInProgress} {
		if errors.Is(err, no) {
			return &api.Error{Code: api.NotMaster, Message: "Raft takes no change from this replica, which is not the master any more", Err: err}
		}
	}
	return &api.Error{Code: api.Uncertain, Message: "the change may or may not have been committed; a retry with the same request number finds out", Err: err}
}

// size estimates the bytes of a command in its entry.
func size(c raftfsm.Command) int {
	const plain = 128
	switch {
	case c.Open != nil:
		return plain + len(c.Open.Contents) + len(c.Open.Name)
	case c.SetContents != nil:
		return plain + len(c.SetContents.Contents)
	case c.Acquire != nil:
		return plain * (1 + len(c.Acquire.Claims))
	case c.Release != nil:
		return plain * (1 + len(c.Release.Successors))
	case c.EndSessions != nil:
		return plain * (1 + len(c.EndSessions.Ends) + len(c.EndSessions.Successors))
	}
	return plain
}
