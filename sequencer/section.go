package sequencer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
)

// lock is what a Guard knows of one lock, with all other Guards of its FileStore:
// its newest token, and the requests inside, which all have one token.
type lock struct {
	// newest is the highest token let in. It only rises, and only after it was
	// stored.
	newest atomic.Uint64

	mu      sync.Mutex // guards the fields below; held for a few instructions
	inside  map[*section]struct{}
	token   uint64        // of every section inside; without meaning if there is none
	changed chan struct{} // closed when inside has become empty or newest has risen; nil if no request waits
}

// section is one running request of Guard.Do.
type section struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	seq    Sequencer
}

func newLock() *lock { return &lock{inside: make(map[*section]struct{})} }

// raise makes a token that was stored the newest, unless another Guard has
// stored a higher one.
func (l *lock) raise(token uint64) {
	for {
		now := l.newest.Load()
		//mutants: same (an equal token is set again)
		if now >= token || l.newest.CompareAndSwap(now, token) {
			return
		}
	}
}

// enter waits until no request of a lower token is inside and adds one of seq.
// It fails with a stale Refusal as soon as a higher token is known, and with the
// context's end. waited reports whether it had to wait.
//
// Exclusion: sections are added only under mu, only if no section of another
// token is inside, and only while newest is not above their token. So all that
// are inside have one token, and that token only rises.
func (l *lock) enter(ctx context.Context, seq Sequencer) (s *section, waited bool, err error) {
	for ; ; waited = true {
		if ctx.Err() != nil {
			return nil, waited, ended(ctx, seq)
		}
		l.mu.Lock()
		if newest := l.newest.Load(); newest > seq.Token() {
			l.mu.Unlock()
			return nil, waited, Stale(seq, newest)
		}
		if len(l.inside) == 0 || l.token == seq.Token() {
			s = &section{seq: seq}
			s.ctx, s.cancel = context.WithCancelCause(ctx)
			l.inside[s] = struct{}{}
			l.token = seq.Token()
			l.mu.Unlock()
			return s, waited, nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// leave ends a section. It cancels the context first, so that code that still
// watches the context notices before a newer token enters.
func (l *lock) leave(s *section) {
	s.cancel(context.Canceled)
	l.mu.Lock()
	delete(l.inside, s)
	//mutants: same (who is woken looks, and waits again)
	if len(l.inside) == 0 {
		l.wake()
	}
	l.mu.Unlock()
}

// supersede cancels requests of tokens below newest, inside or waiting. The
// caller has raised l.newest, so none of them enters afterwards.
func (l *lock) supersede(newest uint64) {
	var older []*section
	l.mu.Lock()
	for s := range l.inside {
		if s.seq.Token() < newest {
			older = append(older, s)
		}
	}
	l.wake()
	l.mu.Unlock()
	// Cancelling runs code of those that watch the contexts: do it without mu.
	for _, s := range older {
		s.cancel(Stale(s.seq, newest))
	}
}

// wake makes the waiting requests check again. The caller holds mu.
func (l *lock) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// DefaultMaxLocks is how many locks a Guard distinguishes by default. Each
// costs a few hundred bytes of memory and about a hundred in a FileStore, which
// rewrites its whole file when a lock changes hands.
const DefaultMaxLocks = 4096

// GuardConfig says which sequencers a Guard accepts. Store must be set, and at
// least one of Locks and Prefix.
type GuardConfig struct {
	// Locks are the accepted locks, by their whole paths. Write the cell's own
	// name, because that name is in its sequencers: /ls/local is right for a
	// cell that is itself named local, as a guard knows no default cell.
	Locks []api.Path
	// Prefix accepts the lock of this node and of every node below it. All
	// locks and the prefix of one Guard must belong to one cell.
	Prefix api.Path
	// Cell, if set, is the only cell id accepted. If it is not set, the first sequencer that is
	// otherwise acceptable decides, and Store remembers its cell. A cell that is bootstrapped again
	// has another id and counts from the start: set Cell to accept it.
	Cell api.CellID
	// Mode is the weakest mode accepted: Exclusive (the default, for servers
	// with one primary), or Shared, which accepts both.
	Mode api.LockMode
	// Store keeps the newest sequencer of each lock across restarts.
	Store Store
	// Checker, if set, is also asked about every request. With it a sequencer
	// is refused as soon as its lock is lost, not only when a newer one
	// arrives, and an invented sequencer is refused at once.
	Checker Checker
	// MaxLocks is the largest number of locks below Prefix that the Guard
	// distinguishes; zero means DefaultMaxLocks. The first use of one more is
	// refused with QuotaExceeded: if the Guard forgot a lock, it would let
	// stale holders in.
	MaxLocks int
}

// Store keeps the most recent sequencer of each lock across restarts. A Guard
// calls Load once, before anything else, and never calls Save concurrently.
type Store interface {
	// Load returns everything saved, in any order, of any number of locks. An
	// empty store returns nothing and no error. A store that cannot tell what
	// was saved must fail: a Guard that gets nothing accepts every token as
	// new.
	Load(ctx context.Context) ([]Sequencer, error)
	// Save keeps s as the newest of its lock (Cell and Path); it comes without its proof. When it returns
	// nil, s must survive a crash of the machine. It must fail with
	// BadSequencer, and change nothing, if it has a greater token of that lock.
	// After any other error s may be saved or not. Save should return when ctx
	// ends.
	Save(ctx context.Context, s Sequencer) error
}

// Checker tells whether a sequencer is still valid; a session with the cell can
// (Chubby §2.4: "against the server's Chubby cache"). A Guard calls it for each
// request, from any goroutine, before it lets the request in. An error refuses
// the request and is returned to the caller, in a Refusal if the code is
// BadSequencer. Return BadSequencer if the lock is lost, and Unavailable if
// that could not be found out. Cell.Checker and Client.CachingChecker of
// package client return a Checker.
type Checker interface {
	CheckSequencer(ctx context.Context, s Sequencer) error
}

// named returns the paths in the configuration.
func (c *GuardConfig) named() []api.Path {
	paths := append([]api.Path(nil), c.Locks...)
	if !c.Prefix.IsZero() {
		paths = append(paths, c.Prefix)
	}
	return paths
}

func (c *GuardConfig) validate() error {
	var faults []string
	named := c.named()
	if len(named) == 0 {
		faults = append(faults, "neither Locks nor Prefix is set, so no lock would be accepted")
	}
	for _, path := range named {
		switch {
		case path.IsZero():
			faults = append(faults, "Locks holds a zero path")
		case !named[0].IsZero() && path.Cell() != named[0].Cell():
			faults = append(faults, fmt.Sprintf("%s and %s are of two cells; make a Guard for each", named[0], path))
		}
	}
	if c.Cell != "" {
		if _, err := api.ParseCellID(string(c.Cell)); err != nil {
			faults = append(faults, "Cell: "+err.Error())
		}
	}
	if !c.Mode.Valid() {
		faults = append(faults, fmt.Sprintf("Mode %d is neither Exclusive nor Shared", c.Mode))
	}
	if c.Store == nil {
		faults = append(faults, "Store is not set; without one, stale holders would get in after a restart")
	}
	if c.MaxLocks < len(c.Locks) {
		faults = append(faults, fmt.Sprintf("MaxLocks is %d, for %d Locks", c.MaxLocks, len(c.Locks)))
	}
	if len(faults) == 0 {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: "make a sequencer guard", Message: strings.Join(faults, "; ")}
}

func (c *GuardConfig) accepts(path api.Path) bool {
	rest, below := strings.CutPrefix(path.String(), c.Prefix.String())
	return slices.Contains(c.Locks, path) || !c.Prefix.IsZero() && below && (rest == "" || rest[0] == '/')
}

func (c *GuardConfig) describe() string {
	named := c.named()
	if len(named) == 1 {
		return named[0].String()
	}
	return fmt.Sprintf("%s and %d others", named[0], len(named)-1)
}

// Refusal is a refusal with both tokens, for programs. errors.As finds it in
// the errors of Check and Do, and in it the *api.Error, whose code is
// BadSequencer. The refusal of a text that is not a sequencer has no Refusal.
type Refusal struct {
	Token  uint64 // of the request's sequencer
	Newest uint64 // the greatest let in before for its lock; 0 if there was none, or none is known

	stale bool // a newer token is known
	lost  bool // according to the Checker
	err   error
}

// Error names both tokens.
func (r *Refusal) Error() string {
	switch {
	case !r.lost:
		return r.err.Error()
	case r.Newest == 0:
		return fmt.Sprintf("token %d is refused (none was let in before): %v", r.Token, r.err)
	}
	return fmt.Sprintf("token %d is refused (%d is the newest let in): %v", r.Token, r.Newest, r.err)
}

// Unwrap returns the *api.Error, or what the Checker returned.
func (r *Refusal) Unwrap() error { return r.err }

// Stale returns the refusal of s because the token newest of its lock is known.
// A Store returns it from Save.
func Stale(s Sequencer, newest uint64) error {
	return &Refusal{Token: s.Token(), Newest: newest, stale: true, err: refused(s,
		"token %d is stale: %d was seen for %s; the lock has passed on, so stop acting for it, or acquire it again",
		s.Token(), newest, s.Path)}
}

// refusal returns the error for a well-formed sequencer that this guard does
// not accept, whatever it accepted before.
func refusal(s Sequencer, format string, args ...any) error {
	return &Refusal{Token: s.Token(), err: refused(s, format, args...)}
}

func refused(s Sequencer, format string, args ...any) *api.Error {
	return &api.Error{Code: api.BadSequencer, Op: "check sequencer", Path: s.Path.String(), Message: fmt.Sprintf(format, args...)}
}

// ended returns the error for a ctx that ended before the request of s was let
// in.
func ended(ctx context.Context, s Sequencer) error {
	return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "check sequencer", Path: s.Path.String(), Err: context.Cause(ctx),
		Message: fmt.Sprintf("the request of token %d was not let in before its time ran out; "+
			"older requests may still be running, or the store is slow", s.Token())}
}
