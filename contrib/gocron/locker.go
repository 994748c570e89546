package chubbycron

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/go-co-op/gocron/v2"
)

// DefaultAtLeast is LockerConfig.AtLeast unless it is set.
const DefaultAtLeast = 5 * time.Second

// LockerConfig is the configuration of a Locker. All schedulers that share jobs need the
// same Path and AtLeast.
type LockerConfig struct {
	// Path is the directory of the locks, as in "/ls/local/cron"; it is created if it is
	// absent.
	Path string
	// AtLeast is for how long a lock is kept after it was taken; 0 is DefaultAtLeast. It
	// has to be shorter than the intervals between the runs of a job, and longer than twice
	// the difference between the clocks of the hosts. For a DurationJob it has to be the
	// interval less a little, a second for example: gocron does not tell the Locker the
	// interval. Close waits as long.
	AtLeast time.Duration
	// LockDelay is for how long nobody gets a lock after its holder has failed (Chubby
	// §2.4), at most api.MaxLockDelay. 0 is api.DefaultLockDelay, which is 10 s; a
	// negative one is none.
	LockDelay time.Duration
}

// Locker is a gocron.Locker with the locks of a Chubby cell, for jobs that all schedulers
// run at the same time (CronJob, DailyJob). Each scheduler counts the interval of a
// DurationJob from its own start: give those to an Elector, or give each interval a Locker
// of its own, whose AtLeast is a little shorter than the interval. Its methods may be
// called from several goroutines. Close it. It has a goroutine for each lock that is kept
// although the job has ended: at most one for each name.
type Locker struct {
	keeper  *client.Keeper
	dir     api.Path
	atLeast time.Duration
	delay   time.Duration
	closing chan struct{}  // closed when kept locks are to be given up
	keeping sync.WaitGroup // the goroutines; Add only under mu, and not after closed

	mu     sync.Mutex // guards what follows; no other mutex is taken while it is held
	closed bool
	held   map[context.Context]*jobLock // by the context of the job, of jobs that run
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker with the session of a Keeper, which others may use too, and
// which the caller closes after the Locker. It makes no call. The error is InvalidPath or
// InvalidArgument.
func NewLocker(keeper *client.Keeper, cfg LockerConfig) (*Locker, error) {
	dir, err := api.ParsePath(cfg.Path)
	if err != nil {
		return nil, err
	}
	delay, err := lockDelay("new locker", cfg.Path, cfg.LockDelay)
	if err != nil {
		return nil, err
	}
	if cfg.AtLeast < 0 {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "new locker", Path: cfg.Path, Message: fmt.Sprintf("AtLeast is %v; it cannot be negative", cfg.AtLeast)}
	}
	if cfg.AtLeast == 0 {
		cfg.AtLeast = DefaultAtLeast
	}
	return &Locker{
		keeper: keeper, dir: dir, atLeast: cfg.AtLeast, delay: delay,
		closing: make(chan struct{}), held: map[context.Context]*jobLock{},
	}, nil
}

// jobLock is the lock of a run of a job.
type jobLock struct {
	locker *Locker
	job    context.Context //nolint:containedctx // by which Task finds the lock
	lock   *client.Lock
	kept   context.Context    //nolint:containedctx // ends when the lock was held for AtLeast
	free   context.CancelFunc // of what kept takes
}

// Lock takes the lock of a job's name. LockHeld says that another scheduler has it, or has
// had it within AtLeast; LockDelayed that one has failed that had it. If there is no answer
// within the half of AtLeast, the error is Unavailable or DeadlineExceeded, and the lock is
// not held.
func (k *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	file, err := api.ParsePath(k.dir.String() + "/" + component(name))
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, k.atLeast/2)
	defer cancel()
	reason := fmt.Sprintf("gocron: %+q", name)
	l, err := acquire(within, k.keeper, file, client.Try(), client.LockDelay(k.delay), client.Reason(reason[:min(len(reason), api.MaxReason)]))
	if err != nil {
		return nil, err
	}
	one := &jobLock{locker: k, job: ctx, lock: l}
	one.kept, one.free = context.WithTimeout(context.Background(), k.atLeast)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[ctx] = one
	return one, nil
}

// Unlock is called by the scheduler when the job has ended. Nil means that the lock was held
// until now; it is kept until it has been held for AtLeast. LockLost or SessionExpired says
// that it had been lost: another scheduler may have done the next run meanwhile.
func (one *jobLock) Unlock(ctx context.Context) error {
	k := one.locker
	k.mu.Lock()
	if k.held[one.job] == one {
		delete(k.held, one.job)
	}
	kept := one.kept.Err() == nil && !k.closed && one.lock.Context().Err() == nil
	if kept {
		k.keeping.Go(one.keep)
	}
	k.mu.Unlock()
	if kept {
		return one.lock.Err()
	}
	one.free()
	return release(ctx, one.lock)
}

// keep releases the lock when it was held for AtLeast, or when it is lost, or when the Locker is closed.
func (one *jobLock) keep() {
	defer one.free()
	select {
	case <-one.kept.Done():
	case <-one.lock.Context().Done():
	case <-one.locker.closing:
	}
	ctx, cancel := context.WithTimeout(context.Background(), client.CleanupTime)
	defer cancel()
	_ = release(ctx, one.lock) // the job has ended; without an answer, it is released in the background
}

// Task returns a function for gocron.NewTask, which calls f with a context that ends with
// that of the job, or when the lock of the run may not be relied on any more, with the cause.
// If it has ended before, f is not called. A job without a lock has the context of the job.
func (k *Locker) Task(f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		k.mu.Lock()
		one := k.held[ctx]
		k.mu.Unlock()
		if one == nil {
			return f(ctx)
		}
		return underLock(ctx, one.lock, f)
	}
}

func underLock(ctx context.Context, l *client.Lock, f func(ctx context.Context) error) error {
	within, end := l.With(ctx)
	defer end()
	if within.Err() != nil {
		return context.Cause(within)
	}
	return f(within)
}

// Close waits until the locks of jobs that have ended have been kept for AtLeast, or ctx
// ends, and then gives them up. Shut the schedulers down first: jobs that run keep their
// locks until they have ended. The error is that of ctx, if it has ended. Later calls do the
// same.
func (k *Locker) Close(ctx context.Context) error {
	k.mu.Lock()
	first := !k.closed
	k.closed = true
	k.mu.Unlock()
	done := make(chan struct{})
	go func() {
		k.keeping.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = &api.Error{Code: api.ContextCode(ctx.Err()), Op: "close", Path: k.dir.String(), Err: ctx.Err(), Message: "locks were given up before they had been kept for AtLeast"}
	}
	if first {
		close(k.closing)
	}
	<-done
	return err
}
