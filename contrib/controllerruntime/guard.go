package chubbyleader

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Guard returns a runnable that runs r under the lock by which its manager is elected. NewManager guards
// what is added to its manager; Guard is for managers that are made otherwise, with the lock as
// LeaderElectionResourceLockInterface.
//
// The context of r ends with that of the manager, and before another manager can have the lock; its Err
// reads the clock, and chubbylock.FromContext returns the sequencer. The lock is not released before
// Start of r has returned: goroutines of r must have stopped by then. If the leadership was lost, the
// runnable returns LockLost, joined with the error of r, so that the manager stops. If it is lost
// before, r is not started.
//
// A runnable that does not need leader election is returned as it is.
func Guard(lock *chubbylock.Lock, r manager.Runnable) manager.Runnable {
	if !needsElection(r) {
		return r
	}
	g := &guarded{lock: lock, inner: r}
	if w, ok := r.(warmup); ok {
		return &warmGuarded{guarded: g, warmup: w}
	}
	return g
}

// warmup is what a runnable has that prepares itself before the election, as controllers do.
type warmup interface {
	Warmup(ctx context.Context) error
}

// needsElection reports whether a manager starts a runnable after the election. It is the rule of
// controller-runtime, by the type.
func needsElection(r manager.Runnable) bool {
	switch r := r.(type) {
	case *guarded, *warmGuarded:
		return false // it is guarded
	case *manager.Server:
		return r.NeedLeaderElection()
	case interface{ GetCache() cache.Cache }:
		return false
	case webhook.Server:
		return false
	case manager.LeaderElectionRunnable:
		return r.NeedLeaderElection()
	}
	return true
}

// guarded is a runnable under the lock.
type guarded struct {
	lock  *chubbylock.Lock
	inner manager.Runnable
}

// NeedLeaderElection is true: the others are not guarded.
func (g *guarded) NeedLeaderElection() bool { return true }

// Start runs the runnable, as long as this candidate leads.
func (g *guarded) Start(ctx context.Context) error {
	leading, done := g.lock.Guard(ctx)
	defer done()
	var err error
	if leading.Err() == nil {
		err = g.inner.Start(context.WithValue(leading, leadership{}, leading))
	}
	if ctx.Err() != nil || leading.Err() == nil {
		return err // the manager stops, or the work is done
	}
	lost := &api.Error{Code: api.LockLost, Op: "lead", Path: g.lock.Describe(), Err: context.Cause(leading),
		Message: "the leadership was lost, and the runnable has stopped"}
	if err == nil || errors.Is(err, context.Canceled) {
		return lost
	}
	return errors.Join(lost, err)
}

// warmGuarded is a guarded runnable that prepares itself.
type warmGuarded struct {
	*guarded
	warmup
}

// leadership is the key of the guarded context in those that are derived from it.
type leadership struct{}

// CheckLeadership returns nil while the leadership that a context belongs to can be relied on: a
// context that a guarded runnable, or its Reconcile, was given, or one made of it. It reads the clock, and
// so is right in a process that was stopped, also if timers are late. It makes no call. The error is why
// the context, or the leadership, has ended; NotHeld for a context without a leadership.
func CheckLeadership(ctx context.Context) error {
	leading, ok := ctx.Value(leadership{}).(context.Context)
	switch {
	case !ok:
		return &api.Error{Code: api.NotHeld, Op: "lead", Message: "the context is not that of a runnable which is guarded"}
	case leading.Err() != nil:
		return context.Cause(leading)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil
}
