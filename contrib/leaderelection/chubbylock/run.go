package chubbylock

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api"
	"k8s.io/client-go/tools/leaderelection"
)

// Run runs an elector with a Lock of this package, as RunOrDie does, until ctx
// ends or the leadership is lost. With it there is at most one leader:
//
//   - the context of OnStartedLeading is guarded (see Guard), so that it ends
//     before another can lead, and not RenewDeadline later;
//   - when the lock is lost, the elector ends at once;
//   - the lock is released only after OnStartedLeading has returned. With
//     ReleaseOnCancel the elector waits for that, at most RenewDeadline.
//
// Run returns when OnStartedLeading and OnStoppedLeading have returned. The
// error is nil if ctx ended it, LockLost with the reason if the leadership was
// lost, and InvalidArgument for a configuration that cannot work. Run may be
// called again with the same Lock, for the next leadership.
func Run(ctx context.Context, cfg leaderelection.LeaderElectionConfig) error {
	l, ok := cfg.Lock.(*Lock)
	if !ok {
		return api.Errorf(api.InvalidArgument, "the Lock is a %T; Run is for those of New", cfg.Lock)
	}
	if cfg.Coordinated {
		return l.errorf(api.InvalidArgument, "coordinated elections are not supported: the cell decides who leads")
	}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	m := &manager{stop: cancel, worked: make(chan struct{})}
	if work := cfg.Callbacks.OnStartedLeading; work != nil {
		cfg.Callbacks.OnStartedLeading = func(ctx context.Context) { m.run(ctx, l, work) }
	}
	elector, err := leaderelection.NewLeaderElector(cfg)
	if err != nil {
		return l.errorf(api.InvalidArgument, "%v", err)
	}
	if cfg.WatchDog != nil {
		cfg.WatchDog.SetLeaderElection(elector)
	}
	if !l.manage(nil, m) {
		return l.errorf(api.InvalidArgument, "another elector runs with this Lock")
	}
	defer l.manage(m, nil)
	elector.Run(running)
	if m.begun() != nil {
		<-m.worked
	}
	if ctx.Err() != nil {
		return nil
	}
	if why := context.Cause(running); why != nil {
		return &api.Error{Code: api.LockLost, Op: "lead", Path: l.cfg.Path, Err: why, Message: "the leadership was lost"}
	}
	return l.errorf(api.LockLost, "the elector gave up renewing its record")
}

// manage replaces the manager old by m. It reports false if old is not the manager.
func (l *Lock) manage(old, m *manager) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.manager != old {
		return false
	}
	l.manager, l.shown = m, record{} // a new elector has not seen any record
	return true
}

// manager is for the one leadership that a Run of an elector can have.
type manager struct {
	stop   context.CancelCauseFunc // ends the elector
	worked chan struct{}           // closed when OnStartedLeading has returned

	mu      sync.Mutex // guards what follows
	term    *term      // nil before it begins
	entered bool       // the guard is made before the elector starts the work: no release can come in between
}

// begin is called when the leadership begins.
func (m *manager) begin(t *term) {
	m.mu.Lock()
	m.term, m.entered = t, t.enter()
	m.mu.Unlock()
	context.AfterFunc(t.working, func() { m.stop(context.Cause(t.working)) })
}

func (m *manager) begun() *term {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term
}

// run is OnStartedLeading, which the elector calls once in each term.
func (m *manager) run(ctx context.Context, l *Lock, work func(context.Context)) {
	defer close(m.worked)
	m.mu.Lock()
	t, entered := m.term, m.entered
	m.mu.Unlock()
	guard := l.Guard // whose context has ended
	if entered {
		guard = t.guard
	}
	guarded, done := guard(ctx)
	defer done()
	work(guarded)
}
