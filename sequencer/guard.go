package sequencer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
)

// Guard lets requests in by their sequencers: only those of the locks, the cell
// and the mode of its configuration, and never one with a lower token than it
// let in before for that lock, in this process or an earlier one with the same
// Store. It stores a token higher than all before, and then lets its first
// request in. A Guard is safe for concurrent use.
type Guard struct {
	config   GuardConfig
	cellName string // the cell of every lock accepted
	accepted atomic.Uint64
	stale    atomic.Uint64
	lost     atomic.Uint64
	missing  atomic.Uint64
	other    atomic.Uint64

	// saving is a lock, held by filling it, for judging and storing a new
	// sequencer, so that the store gets the tokens in the order in which they
	// rise.
	saving chan struct{}

	// newest finds the lock of a text that was let in before, without parsing
	// the text and without a mutex. The map is never changed; it is replaced,
	// under mu.
	newest atomic.Pointer[map[string]*admission]

	mu    sync.Mutex // guards the fields below, and replacing newest
	cell  api.CellID // pinned, or that of the first sequencer sent to be stored; "" until then
	locks map[api.Path]*admission
}

// admission is the newest sequencer of a lock.
type admission struct {
	seq  Sequencer
	lock *lock
}

// Stats counts a Guard's decisions since it was made.
type Stats struct {
	Accepted       uint64 // requests let in
	RefusedStale   uint64 // requests whose token was below the newest of their lock
	RefusedLost    uint64 // requests whose lock was lost, according to the Checker
	RefusedMissing uint64 // requests that carried no sequencer, or several: see CountMissing
	RefusedOther   uint64 // requests refused for any other reason: malformed, another lock, time ran out, …
}

// NewGuard reads the store and returns a Guard. If the configuration
// contradicts itself or the store, the error is InvalidArgument and names every
// fault. If the store cannot be read, it is the store's own error: a guard must
// not start without the tokens that it has seen.
func NewGuard(ctx context.Context, config GuardConfig) (*Guard, error) {
	if config.Mode == 0 {
		config.Mode = api.Exclusive
	}
	if config.MaxLocks == 0 {
		config.MaxLocks = DefaultMaxLocks
	}
	config.Locks = append([]api.Path(nil), config.Locks...)
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Guard{
		config: config,
		cell:   config.Cell,
		saving: make(chan struct{}, 1),
		locks:  make(map[api.Path]*admission),
	}
	for _, path := range config.named() {
		g.cellName = path.Cell()
	}
	saved, err := config.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the newest sequencers seen: %w", err)
	}
	if err := g.remember(saved); err != nil {
		return nil, err
	}
	return g, nil
}

// remember reads the saved sequencers of this guard's cell.
func (g *Guard) remember(saved []Sequencer) error {
	for _, s := range saved {
		if fault := s.fault(); fault != "" {
			return &api.Error{Code: api.Corrupt, Op: "read the newest sequencers seen", Path: s.Path.String(),
				Message: "the store returned a value that is no sequencer: " + fault}
		}
		if s.Path.Cell() != g.cellName || g.config.Cell != "" && s.Cell != g.config.Cell {
			continue
		}
		if g.cell != "" && g.cell != s.Cell {
			return &api.Error{Code: api.InvalidArgument, Op: "make a sequencer guard", Path: s.Path.String(),
				Message: fmt.Sprintf("the store knows cell %s by two ids, %s and %s; set Cell to the one that counts", g.cellName, g.cell, s.Cell)}
		}
		g.cell = s.Cell
		//mutants: same (a lock that is not accepted is asked about by nobody)
		if known := g.locks[s.Path]; g.config.accepts(s.Path) && (known == nil || known.seq.Token() < s.Token()) {
			a := &admission{seq: s, lock: g.lockOf(s)}
			//mutants: same (no request compares with less than its own token)
			a.lock.raise(s.Token())
			g.locks[s.Path] = a
		}
	}
	table := make(map[string]*admission, len(g.locks))
	for _, a := range g.locks {
		// An earlier configuration may have accepted locks that this one does
		// not.
		//mutants: same (the table only saves work)
		if g.concerns(a.seq) == nil {
			//mutants: same (the table only saves work)
			table[a.seq.String()] = a
		}
	}
	g.newest.Store(&table)
	return nil
}

// Check lets one request in, or refuses it, by the text of its sequencer, and
// returns the sequencer. It is enough only if the write that follows carries
// the token and the storage compares it; see Do.
//
// A refusal is an *api.Error. The code is BadSequencer if the request must not
// be served: the text is malformed; the lock, cell or mode is another; or the
// sequencer is stale or lost. For a stale or lost one, the error is a Refusal
// and its message has both tokens. The other codes are QuotaExceeded above
// MaxLocks, Unavailable if a new token could not be stored, and Cancelled or
// DeadlineExceeded if ctx ended before that; the caller may try again.
//
// For the newest token of a lock, without a Checker, Check costs one look-up.
func (g *Guard) Check(ctx context.Context, text string) (Sequencer, error) {
	a, err := g.admit(ctx, text)
	if err != nil {
		return Sequencer{}, g.refused(err)
	}
	g.accepted.Add(1)
	return a.seq, nil
}

// Do runs serve if Check would let the request in, in a section of its lock:
// serve begins only after every serve of a lower token has returned, and no
// serve of a lower token begins after that. When a higher token arrives, Do
// cancels the contexts of running serves of lower tokens, with the refusal as
// the cause. A serve that ignores its context makes the newer primary wait
// until ctx ends, so give ctx a deadline. After such a wait, Do asks the
// Checker again.
//
// Do returns serve's error unchanged, or Check's if serve was not called.
// FromContext finds the sequencer in serve's context. Requests of one token run
// concurrently. A serve must not wait for a Do with a higher token of its own
// lock, because that one waits for it. A section also ends when serve panics.
func (g *Guard) Do(ctx context.Context, text string, serve func(ctx context.Context) error) error {
	a, err := g.admit(ctx, text)
	if err != nil {
		return g.refused(err)
	}
	inside, waited, err := a.lock.enter(ctx, a.seq)
	if err != nil {
		return g.refused(err)
	}
	defer a.lock.leave(inside)
	//mutants: same (the Checker is asked once more)
	if waited {
		// While older requests left, the Checker's earlier answer may have become wrong.
		if err := g.confirm(inside.ctx, a); err != nil {
			return g.refused(err)
		}
	}
	g.accepted.Add(1)
	return serve(context.WithValue(inside.ctx, contextKey{}, a.seq))
}

// Stats returns the counts so far. It reads them one by one, so a request that
// is decided meanwhile may be in one count and not yet in another.
func (g *Guard) Stats() Stats {
	return Stats{
		Accepted: g.accepted.Load(), RefusedStale: g.stale.Load(), RefusedLost: g.lost.Load(),
		RefusedMissing: g.missing.Load(), RefusedOther: g.other.Load(),
	}
}

// CountMissing counts a request that was refused because it carried no
// sequencer, or more than one. It is for code that receives sequencers over a
// wire, such as the interceptors of seqgrpc and the middleware of seqhttp.
func (g *Guard) CountMissing() { g.missing.Add(1) }

// refused counts a refusal and returns the error for the caller.
func (g *Guard) refused(err error) error {
	r := &Refusal{}
	errors.As(err, &r)
	switch {
	case r.stale:
		g.stale.Add(1)
	case r.lost:
		g.lost.Add(1)
	default:
		g.other.Add(1)
	}
	return err
}

// admit returns the admission of a text whose token is at that moment the
// newest of its lock, and durable.
func (g *Guard) admit(ctx context.Context, text string) (*admission, error) {
	//mutants: same (the table only saves work)
	if a := (*g.newest.Load())[text]; a != nil {
		return a, g.confirm(ctx, a)
	}
	s, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if err := g.concerns(s); err != nil {
		return nil, err
	}
	a, err := g.judge(s)
	//mutants: same (raise judges again)
	if err != nil {
		return nil, err
	}
	//mutants: same (raise judges again)
	if a != nil {
		return a, g.confirm(ctx, a)
	}
	// Ask the Checker before the token counts: otherwise an invented token
	// would lock the true holder out.
	if err := g.ask(ctx, s); err != nil {
		return nil, err
	}
	a, err = g.raise(ctx, s)
	if err != nil {
		return nil, err
	}
	// Ask again, because the store may have been slow. A Checker that caches
	// mostly knows the answer.
	//mutant: return a, nil
	return a, g.confirm(ctx, a)
}

// confirm checks what may have changed since the sequencer was let in before.
// Call it after every wait: the Checker's answer from before a wait is too old
// to let a request in.
func (g *Guard) confirm(ctx context.Context, a *admission) error {
	err := g.ask(ctx, a.seq)
	//mutant: if err != nil { return err }; if newest := a.lock.newest.Load(); newest > a.seq.Token() {
	if newest := a.lock.newest.Load(); newest > a.seq.Token() {
		return Stale(a.seq, newest)
	}
	return err
}

func (g *Guard) ask(ctx context.Context, s Sequencer) error {
	if g.config.Checker == nil {
		return nil
	}
	err := g.config.Checker.CheckSequencer(ctx, s)
	if !errors.Is(err, api.BadSequencer) {
		return err
	}
	lost := &Refusal{Token: s.Token(), lost: true, err: err}
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.locks[s.Path]; known != nil {
		lost.Newest = known.seq.Token()
	}
	return lost
}

// concerns refuses a sequencer of another lock or of too weak a mode. A valid
// sequencer of another lock proves nothing here: any client can get one.
func (g *Guard) concerns(s Sequencer) error {
	if !g.config.accepts(s.Path) {
		//mutants: same (only a guard of local accepts a path in it)
		if local, err := s.Path.Name().In(api.LocalCell); err == nil && g.cellName == api.LocalCell && g.config.accepts(local) {
			return refusal(s, "this server is protected by %s, and a guard takes local for the name of a cell, as it cannot know which cell is the default; "+
				"configure it with /%s/%s/...", g.config.describe(), api.Root, s.Path.Cell())
		}
		return refusal(s, "this server is not protected by that lock but by %s", g.config.describe())
	}
	if s.Mode != api.Exclusive && g.config.Mode == api.Exclusive {
		return refusal(s, "the lock was taken in mode %s, and this server demands %s", s.Mode, g.config.Mode)
	}
	return nil
}

// judge compares s with the newest sequencers. It returns an admission if s is
// the newest of its lock, nil and nil if s is newer, and an error otherwise.
func (g *Guard) judge(s Sequencer) (*admission, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cell != "" && s.Cell != g.cell {
		return nil, refusal(s, "it is of the cell with id %s, and this server trusts %s; "+
			"if the cell was bootstrapped anew, pin its id in the server's configuration", s.Cell, g.cell)
	}
	known := g.locks[s.Path]
	if known == nil {
		if len(g.locks) >= g.config.MaxLocks {
			return nil, &api.Error{Code: api.QuotaExceeded, Op: "check sequencer", Path: s.Path.String(),
				Message: fmt.Sprintf("this server keeps %d locks apart, which is its limit; raise MaxLocks", g.config.MaxLocks)}
		}
		return nil, nil
	}
	switch newest := known.seq.Token(); {
	case newest > s.Token():
		return nil, Stale(s, newest)
	case newest < s.Token():
		return nil, nil
	case known.seq.bare() != s.bare():
		return nil, refusal(s, "token %d was seen in mode %s, so it cannot be one of mode %s", newest, known.seq.Mode, s.Mode)
	}
	//mutants: same (the same is made again)
	if known.seq != s { // another text of the same grant, whose proof only the Checker can tell from an invented one
		return &admission{seq: s, lock: known.lock}, nil
	}
	return known, nil
}

// raise makes s the newest of its lock: durably first, then for all requests.
func (g *Guard) raise(ctx context.Context, s Sequencer) (*admission, error) {
	select {
	case g.saving <- struct{}{}:
		defer func() { <-g.saving }()
	case <-ctx.Done():
		return nil, ended(ctx, s)
	}
	// Others may have been stored while this request waited.
	if a, err := g.judge(s); a != nil || err != nil {
		return a, err
	}
	// A failed save may have taken effect, so already the first attempt fixes
	// the cell.
	g.mu.Lock()
	g.cell = s.Cell
	g.mu.Unlock()
	if err := g.config.Store.Save(ctx, s.bare()); err != nil {
		if errors.Is(err, api.BadSequencer) {
			if r := (*Refusal)(nil); !errors.As(err, &r) || !r.stale { // only the store knows the newer one
				err = &Refusal{Token: s.Token(), stale: true, err: err}
			}
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ended(ctx, s)
		}
		return nil, &api.Error{Code: api.Unavailable, Op: "check sequencer", Path: s.Path.String(), Err: err,
			Message: fmt.Sprintf("token %d is new and could not be stored, so the request was not let in; mend the store and send it again", s.Token())}
	}
	g.mu.Lock()
	a := g.publish(s)
	g.mu.Unlock()
	a.lock.supersede(s.Token())
	return a, nil
}

// publish makes s, which is stored, the sequencer to which requests of its lock
// are compared. The caller holds mu.
func (g *Guard) publish(s Sequencer) *admission {
	table := maps.Clone(*g.newest.Load())
	a := &admission{seq: s}
	if old := g.locks[s.Path]; old != nil {
		delete(table, old.seq.String())
		a.lock = old.lock
	} else {
		a.lock = g.lockOf(s)
	}
	a.lock.raise(s.Token())
	table[s.String()] = a
	g.locks[s.Path] = a
	g.newest.Store(&table)
	return a
}

// lockOf returns what is known of the lock of a sequencer that this Guard has not seen before: with a FileStore, what all Guards
// of it know.
func (g *Guard) lockOf(s Sequencer) *lock {
	if store, ok := g.config.Store.(interface{ lockOf(s Sequencer) *lock }); ok {
		return store.lockOf(s)
	}
	return newLock()
}
