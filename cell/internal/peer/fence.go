package peer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// maxFenceRound limits a round; then its callers get an error. Raft's own lease has usually ended by then.
const maxFenceRound = 2 * time.Second

// fenceHedge is how long a round waits for its first voters before it asks the others. The first are as few as
// can decide: asking all would double every read's messages, and decide no sooner.
const fenceHedge = 2 * time.Millisecond

// raftView is what the fence reads of *raft.Raft. Its methods are safe for concurrent use and do not wait for
// Raft's main goroutine.
type raftView interface {
	CurrentTerm() uint64
	State() raft.RaftState
	GetConfiguration() raft.ConfigurationFuture
}

// FenceConfig configures a fence.
type FenceConfig struct {
	Term  uint64 // the term in which this replica was elected
	Self  string // this replica's ID
	Raft  raftView
	Ask   func(id, address string, reply func(Report)) // Prober.Ask
	Clock session.Clock
	Hint  func() string                       // returns the believed master's client address, for errors
	Ended func(took time.Duration, err error) // called with the mutex held when a round ends, to count it
}

// Fence proves that this replica still leads one term: when the proof began, nobody had acknowledged a write
// that this replica's state lacks. It writes nothing. Every read, lease grant and CheckSequencer passes it. See
// probe.go for the argument.
//
// Callers share proofs, as writers share a group commit. One round is under way at a time, and callers that
// come meanwhile share the next: only a round that began after a caller came releases it.
//
// It is safe for concurrent use and has no goroutine: callers begin rounds; the prober's goroutines or a timer end them.
type Fence struct {
	FenceConfig
	hedge time.Duration // how long a round waits for the first voters

	mu     sync.Mutex      // guards the fields below; never held across I/O
	round  *fenceRound     // the current round, nil without one
	next   *fenceRound     // begins when round ends; nil without callers
	closed error           // why proofs have ended
	prompt []raft.ServerID // voters that agreed in the last round, the fastest first
}

// fenceRound is one proof, under way or waiting for its turn.
type fenceRound struct {
	done chan struct{}   // closed when t0 and err are final
	t0   session.Instant // at its beginning
	err  error

	// The fence's mutex guards the rest.
	then   []func(t0 session.Instant, err error)
	voters int             // of the latest configuration
	agree  int             // voters that are at a term <= ours
	higher int             // voters at a higher term
	prompt []raft.ServerID // those that agree, in order of their answers
	rest   []raft.Server   // voters not asked yet
	limit  *time.Timer     // the hedge, then maxFenceRound
}

// NewFence returns the fence of a term that this replica has just won.
func NewFence(cfg FenceConfig) *Fence { return &Fence{FenceConfig: cfg, hedge: fenceHedge} }

// Prove returns once it is certain that no other replica had been elected by t0, which is not before the call.
// It fails with NotMaster if one may have been, with Unavailable if no majority of the voters answers within
// maxFenceRound, with Close's cause after Close, and with DeadlineExceeded or Cancelled (or an *api.Error that
// is ctx's cause) when ctx ends.
func (f *Fence) Prove(ctx context.Context) (session.Instant, error) {
	//mutant: if true { return f.Clock(), nil }; r, err := f.joinRound(nil)
	r, err := f.joinRound(nil)
	if err != nil {
		return 0, err
	}
	select {
	case <-r.done:
		return r.t0, r.err
	case <-ctx.Done():
		return 0, f.contextError(ctx)
	}
}

// Then calls then with what Prove would return without a context, so that very many callers need no goroutine to
// wait in. The fence's mutex is held: then must not block, nor ask the fence.
func (f *Fence) Then(then func(t0 session.Instant, err error)) {
	//mutant: if err := error(nil); err == nil { then(f.Clock(), nil) } else {
	if _, err := f.joinRound(then); err != nil {
		then(0, err)
	}
}

// joinRound returns the caller's round, which must begin after the call. The round calls then at its end, unless
// that is nil.
func (f *Fence) joinRound(then func(session.Instant, error)) (*fenceRound, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return nil, f.closed
	}
	r, first := f.next, f.round == nil
	if r == nil {
		r = &fenceRound{done: make(chan struct{})}
	}
	if then != nil {
		r.then = append(r.then, then)
	}
	if first {
		f.beginRound(r)
	} else {
		f.next = r
	}
	return r, nil
}

// release tells the callers of a round. The fence's mutex is held.
func (r *fenceRound) release() {
	close(r.done)
	for _, then := range r.then {
		then(r.t0, r.err)
	}
}

// Close makes every pending and later call fail with cause.
func (f *Fence) Close(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return
	}
	f.closed = cause
	next := f.next
	f.next = nil
	if f.round != nil {
		f.endRound(f.round, cause)
	}
	if next != nil {
		next.err = cause
		next.release()
	}
}

// beginRound begins a round. It reads the clock before it asks anything, then the configuration. f.mu is held.
func (f *Fence) beginRound(r *fenceRound) {
	f.round = r
	r.t0 = f.Clock()
	configuration := f.Raft.GetConfiguration()
	if err := configuration.Error(); err != nil {
		f.endRound(r, &api.Error{
			Code:    api.Unavailable,
			Op:      "prove leadership",
			Replica: f.Self,
			Message: "raft does not tell who may vote",
			Err:     err,
		})
		return
	}
	servers := configuration.Configuration().Servers
	others := make([]raft.Server, 0, len(servers))
	r.prompt = make([]raft.ServerID, 0, len(servers))
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		r.voters++
		if string(s.ID) == f.Self {
			r.agree++ // checkLeading reads our own term, after all others
			continue
		}
		others = append(others, s)
	}
	if f.endIfDecided(r) {
		return
	}
	slices.SortStableFunc(others, func(a, b raft.Server) int { return cmp.Compare(f.rank(a.ID), f.rank(b.ID)) })
	first := min(r.voters/2+1-r.agree, len(others))
	r.rest = others[first:]
	r.limit = time.AfterFunc(f.hedge, func() { f.askRest(r) })
	f.askVoters(r, others[:first])
}

func (f *Fence) rank(id raft.ServerID) int {
	if at := slices.Index(f.prompt, id); at >= 0 {
		return at
	}
	return len(f.prompt)
}

func (f *Fence) askVoters(r *fenceRound, voters []raft.Server) {
	for _, s := range voters {
		f.Ask(string(s.ID), string(s.Address), func(report Report) { f.countAnswer(r, s.ID, report) })
	}
}

// askRest asks a round's remaining voters, or ends the round.
func (f *Fence) askRest(r *fenceRound) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r != f.round: // the round has ended
	case len(r.rest) > 0:
		rest := r.rest
		r.rest = nil
		r.limit.Reset(maxFenceRound - f.hedge)
		f.askVoters(r, rest)
	default:
		f.endRound(r, &api.Error{Code: api.Unavailable, Op: "prove leadership", Replica: f.Self,
			Message: "no majority of the replicas answered within " + maxFenceRound.String() + ": retry; if it lasts, see which replicas are down (chubbyctl cell status)"})
	}
}

func (f *Fence) countAnswer(r *fenceRound, id raft.ServerID, report Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r != f.round {
		return // the round has ended
	}
	if report.Term <= f.Term {
		r.agree++
		r.prompt = append(r.prompt, id)
	} else {
		r.higher++
	}
	f.endIfDecided(r)
}

// endIfDecided ends the round if the answers decide it. f.mu is held.
func (f *Fence) endIfDecided(r *fenceRound) bool {
	majority := r.voters/2 + 1
	switch {
	case r.agree >= majority:
		f.endRound(r, f.checkLeading())
	case r.voters-r.higher < majority:
		f.endRound(r, f.notMaster("a majority of the replicas has gone on to a later election"))
	default:
		return false
	}
	return true
}

// checkLeading reads this replica's own term and state, after all others'.
func (f *Fence) checkLeading() error {
	if f.Raft.CurrentTerm() != f.Term || f.Raft.State() != raft.Leader {
		return f.notMaster("this replica is not the master any more")
	}
	return nil
}

// endRound releases a round's callers, and begins the next round for pending ones. f.mu is held.
func (f *Fence) endRound(r *fenceRound, err error) {
	if r.limit != nil {
		r.limit.Stop()
	}
	r.err = err
	f.round = nil
	f.Ended(f.Clock().Sub(r.t0), err)
	if err == nil {
		f.prompt = r.prompt
	}
	if next := f.next; next != nil {
		f.next = nil
		f.beginRound(next)
	}
	r.release()
}

func (f *Fence) notMaster(why string) error {
	return &api.Error{Code: api.NotMaster, Op: "prove leadership", Replica: f.Self, Message: why + ": ask the new one", Master: f.Hint()}
}

func (f *Fence) contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	var known *api.Error
	if errors.As(cause, &known) {
		return cause
	}
	return &api.Error{
		Code:    api.ContextCode(cause),
		Op:      "prove leadership",
		Replica: f.Self,
		Message: "the caller went away before a majority answered",
		Err:     cause,
	}
}
