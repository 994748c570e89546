package chubbycron

import (
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/go-co-op/gocron/v2"
)

// ElectorConfig is the configuration of an Elector. All schedulers of which one is to lead
// need the same Path.
type ElectorConfig struct {
	// Path is the file whose lock the leader holds, as in "/ls/local/cron/leader"; it is
	// created if it is absent, with the directories above it.
	Path string
	// Reason is shown to those who look who leads; at most api.MaxReason bytes. Empty is
	// "gocron".
	Reason string
	// LockDelay is for how long nobody leads after a leader has failed (Chubby §2.4), at
	// most api.MaxLockDelay. 0 is api.DefaultLockDelay, which is 10 s; a negative one is
	// none.
	LockDelay time.Duration
	// Monitor is told what the Elector is told of the scheduler; nil is nobody.
	Monitor gocron.SchedulerMonitor
}

// Elector is a gocron.Elector: its scheduler leads while it holds the lock of a file. Its
// methods may be called from several goroutines. It has one goroutine, which Close waits
// for.
type Elector struct {
	keeper  *client.Keeper
	path    api.Path
	options []client.LockOption
	monitor gocron.SchedulerMonitor

	life context.Context //nolint:containedctx // of the Elector: ended by Close
	end  context.CancelFunc
	done chan struct{} // closed when the lock has been given up after Close

	mu   sync.Mutex    // guards what follows; no other mutex is taken while it is held
	lock *client.Lock  // nil while others lead; it may have been lost while work has not stopped
	work int           // pieces of work that have not stopped: runs of jobs, and tasks
	idle chan struct{} // closed when work is 0; nil if nobody waits for that
	why  error         // of the last attempt to acquire the lock
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector with the session of a Keeper, which others may use too, and
// which the caller closes after the Elector. From now on it waits for the lock, in the
// background. The error is InvalidPath or InvalidArgument.
func NewElector(keeper *client.Keeper, cfg ElectorConfig) (*Elector, error) {
	path, err := api.ParsePath(cfg.Path)
	if err != nil {
		return nil, err
	}
	delay, err := lockDelay("new elector", cfg.Path, cfg.LockDelay)
	switch {
	case err != nil:
		return nil, err
	case path.IsRoot():
		return nil, &api.Error{Code: api.InvalidArgument, Op: "new elector", Path: cfg.Path, Message: "Path is the root of a cell; name a file below it"}
	case len(cfg.Reason) > api.MaxReason:
		return nil, &api.Error{Code: api.InvalidArgument, Op: "new elector", Path: cfg.Path, Message: "Reason is too long"}
	case cfg.Reason == "":
		cfg.Reason = "gocron"
	}
	e := &Elector{keeper: keeper, path: path, options: []client.LockOption{client.LockDelay(delay), client.Reason(cfg.Reason)}, done: make(chan struct{})}
	e.monitor = monitor{SchedulerMonitor: cfg.Monitor, elector: e}
	if cfg.Monitor == nil {
		e.monitor = monitor{SchedulerMonitor: silent{}, elector: e}
	}
	e.life, e.end = context.WithCancel(context.Background())
	go e.campaign()
	return e, nil
}

// Options returns the options of a scheduler that this Elector is for: it asks whether it
// leads, and says when jobs have ended. Several schedulers of a process may have the same.
func (e *Elector) Options() []gocron.SchedulerOption {
	return []gocron.SchedulerOption{gocron.WithDistributedElector(e), gocron.WithSchedulerMonitor(e.monitor)}
}

// retryPause is the time between two attempts at the lock of which the first has failed.
const retryPause = time.Second

// campaign leads again and again, until Close.
func (e *Elector) campaign() {
	defer close(e.done)
	for e.life.Err() == nil {
		l, err := acquire(e.life, e.keeper, e.path, e.options...)
		e.mu.Lock()
		e.why = err
		if err == nil {
			e.lock = l
		}
		e.mu.Unlock()
		if err != nil {
			select {
			case <-e.life.Done():
			case <-time.After(retryPause):
			}
			continue
		}
		select {
		case <-l.Context().Done():
		case <-e.life.Done():
		}
		e.awaitIdle()
		ctx, cancel := context.WithTimeout(context.Background(), client.CleanupTime)
		_ = release(ctx, l) // it may have been lost; without an answer, it is released in the background
		cancel()
	}
}

// awaitIdle returns when no work has not stopped. From then on none begins before the lock is
// acquired again.
func (e *Elector) awaitIdle() {
	for {
		e.mu.Lock()
		if e.work == 0 {
			e.lock = nil
			e.mu.Unlock()
			return
		}
		idle := make(chan struct{})
		e.idle = idle
		e.mu.Unlock()
		<-idle
	}
}

// enter counts a piece of work, which must call leave when it has stopped, if this scheduler
// leads.
func (e *Elector) enter() (*client.Lock, error) {
	e.mu.Lock()
	l, why := e.lock, e.why
	if l != nil {
		e.work++ // before the look at the lock, which is kept from now on
	}
	e.mu.Unlock()
	switch {
	case l == nil:
		return nil, &api.Error{Code: api.NotHeld, Op: "lead", Path: e.path.String(), Err: why, Message: "this scheduler does not lead"}
	case e.life.Err() != nil:
		e.leave()
		return nil, &api.Error{Code: api.NotHeld, Op: "lead", Path: e.path.String(), Err: client.Closed, Message: "the elector is closed"}
	}
	if err := l.Err(); err != nil {
		e.leave()
		return nil, &api.Error{Code: api.LockLost, Op: "lead", Path: e.path.String(), Err: err, Message: "this scheduler does not lead any more"}
	}
	return l, nil
}

// leave notes that a piece of work has stopped.
func (e *Elector) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.work > 0 { // a scheduler may have only the monitor
		e.work--
	}
	if e.work == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// IsLeader returns nil if this scheduler leads, by the local clock; else NotHeld or LockLost.
// After nil, the lock is not given up before the scheduler says that a job has ended, which it does if it
// has the options of Options: so IsLeader is for schedulers alone. It makes no call.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.enter()
	return err
}

// Task returns a function for gocron.NewTask, which calls f with a context that ends with
// that of the job, or when this scheduler may not lead any more, with the cause. If it does
// not lead, f is not called, and the error is NotHeld or LockLost. The lock is not given up
// before f has returned.
func (e *Elector) Task(f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		l, err := e.enter()
		if err != nil {
			return err
		}
		defer e.leave()
		return underLock(ctx, l, f)
	}
}

// Close has this scheduler lead no more, and returns when its work has stopped and the lock
// has been given up. If ctx ends before, the lock is kept until the work has stopped, and the
// error is Cancelled or DeadlineExceeded; Close may be called again. Shut the scheduler down
// first, or its other jobs go on being left out.
func (e *Elector) Close(ctx context.Context) error {
	e.end()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
	}
	return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "close", Path: e.path.String(), Err: ctx.Err(), Message: "work of the scheduler has not stopped; the lock is kept until then"}
}
