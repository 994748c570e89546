package chubbylock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// Config is the configuration of a candidate.
type Config struct {
	// Client says how to reach the cell. Its Lease is that of the candidate's session: the longer
	// it is, the later a failed leader is replaced. A candidate does not cache, whatever NoCache
	// is. Its Logger also logs the leaderships.
	Client client.Config
	// Path is the file whose lock is the leadership. The candidate creates the
	// file if it is missing, but not its directory. The file has the record of
	// the election and nothing else.
	Path string
	// Identity is the candidate's name in the record; no two candidates may have the same.
	Identity string
	// LockDelay is how long there is no leader after a leader's session has failed, so that its
	// last requests have arrived (Chubby §2.4), at most api.MaxLockDelay. 0 is api.DefaultLockDelay,
	// which is 10 s; a negative one is none, for leaders whose servers check sequencers.
	LockDelay time.Duration
}

// Lock is a candidate's side of a leader election. It is a
// resourcelock.Interface for one elector at a time; Guard, Sequencer, Identity
// and Describe are safe for concurrent use. The caller must Close it.
type Lock struct {
	cfg    Config
	log    *slog.Logger
	keeper *client.Keeper // its session is of this Lock alone
	turn   chan struct{}  // capacity 1, full during Get, Create, Update and Close

	life context.Context //nolint:containedctx // it is the Lock's, ended by Close
	end  context.CancelCauseFunc

	mu      sync.Mutex     // guards what follows
	file    *client.Handle // open in that session, which may have been lost; nil before the first
	session api.SessionID
	term    *term    // nil while the lock is not held
	shown   record   // the record of another candidate that Get returned last
	looks   uint64   // counts the records that Get returned
	manager *manager // nil unless Run runs the elector
}

// New returns a Lock. It does not connect yet; the only error is
// InvalidArgument.
func New(cfg Config) (*Lock, error) {
	var faults []error
	if _, err := api.ParsePath(cfg.Path); err != nil {
		faults = append(faults, err)
	}
	if cfg.Identity == "" {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Identity is empty; it names the candidate, say by host and process"))
	}
	if cfg.LockDelay > api.MaxLockDelay {
		faults = append(faults, api.Errorf(api.InvalidArgument, "LockDelay is %v; at most %v are allowed", cfg.LockDelay, api.MaxLockDelay))
	}
	cfg.LockDelay = max(cmp.Or(cfg.LockDelay, api.DefaultLockDelay), 0)
	cfg.Client.NoCache = true
	keeper, err := client.Keep(context.Background(), cfg.Client)
	if err := errors.Join(append(faults, err)...); err != nil {
		if keeper != nil {
			_ = keeper.Close(context.Background()) // it has no session yet
		}
		return nil, fmt.Errorf("candidate: %w", err)
	}
	l := &Lock{cfg: cfg, log: cfg.Client.Logger, keeper: keeper, turn: make(chan struct{}, 1)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// Identity returns the candidate's name.
func (l *Lock) Identity() string { return l.cfg.Identity }

// Describe returns the path.
func (l *Lock) Describe() string { return l.cfg.Path }

// RecordEvent logs the event. With it an elector also reports that it has stopped leading, with or
// without a release: that ends the leadership.
func (l *Lock) RecordEvent(event string) {
	l.log.Info(event, "candidate", l.cfg.Identity, "path", l.cfg.Path)
	if event != stoppedLeading {
		return
	}
	t := l.current()
	if t == nil {
		return
	}
	t.stop(&api.Error{Code: api.NotHeld, Op: "lead", Path: l.cfg.Path, Message: "the elector has stopped leading"})
	if !t.quit() {
		t.abandon()
	}
}

// stoppedLeading is the event of an elector that has stopped leading; a release comes before it.
const stoppedLeading = "stopped leading"

// Sequencer returns the sequencer of this candidate's present leadership, false if it does not
// lead. Work should use FromContext: after the end of its leadership, Sequencer may return that of
// the next one.
func (l *Lock) Sequencer() (sequencer.Sequencer, bool) {
	t := l.current()
	if t == nil {
		return sequencer.Sequencer{}, false
	}
	if _, leads := t.record(); !leads || t.stands() != nil {
		return sequencer.Sequencer{}, false
	}
	return t.lock.Sequencer(), true
}

// Close releases the leadership, if this candidate has it, and ends the session; calls under way
// fail. By calling Close, the caller says that work without Guard has stopped. Close waits for
// guarded work until ctx ends: then the lock expires with the lease, and the error says so. The
// Lock is closed in any case; later calls fail.
func (l *Lock) Close(ctx context.Context) error {
	l.end(l.errorf(api.HandleClosed, "the candidate was closed"))
	l.turn <- struct{}{} // the call that has filled it ends soon
	defer func() { <-l.turn }()
	var err error
	if t := l.current(); t != nil {
		t.stop(context.Cause(l.life))
		select {
		case <-t.stopped():
			err = t.release(ctx)
		case <-ctx.Done():
			err = l.late(ctx, "the work has not stopped; nobody has the lock before lease and lock-delay are over")
			t.abandon()
		}
		l.forget(t)
	}
	return errors.Join(err, l.keeper.Close(ctx))
}

// enter waits for other calls; the caller must call leave. (The calls of one elector never
// overlap.) The context also ends when the Lock is closed.
func (l *Lock) enter(ctx context.Context) (within context.Context, leave func(), err error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, l.late(ctx, "another call is under way; a Lock is for one elector")
	}
	if l.life.Err() != nil {
		<-l.turn
		return nil, nil, context.Cause(l.life)
	}
	within, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })
	return within, func() {
		unhook()
		cancel(context.Canceled)
		<-l.turn
	}, nil
}

// current returns the leadership, unless it has ended.
func (l *Lock) current() *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != nil {
		select {
		case <-l.term.over:
			l.term = nil
		default:
		}
	}
	return l.term
}

func (l *Lock) forget(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == t {
		l.term = nil
	}
}

// late is the error of a call whose context has ended.
func (l *Lock) late(ctx context.Context, message string) error {
	return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "elect", Path: l.cfg.Path, Message: message, Err: ctx.Err()}
}

func (l *Lock) errorf(code api.Code, format string, args ...any) error {
	return &api.Error{Code: code, Op: "elect", Path: l.cfg.Path, Message: fmt.Sprintf(format, args...)}
}
