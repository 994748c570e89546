package chubbyleader

import (
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// The defaults of controller-runtime.
const (
	defaultLeaseDuration = 15 * time.Second
	defaultRenewDeadline = 10 * time.Second
	defaultRetryPeriod   = 2 * time.Second
)

// electedManager is a manager whose runnables are guarded.
type electedManager struct {
	manager.Manager
	lock *chubbylock.Lock
}

// NewManager returns a manager of controller-runtime, as manager.New does, whose leader is elected by
// lock, and whose runnables are guarded by it: see the package comment. One manager at a time may be
// started with a Lock, which stays the caller's: Close it when Start has returned.
//
// Of the options, LeaderElection and LeaderElectionResourceLockInterface are set here.
// LeaderElectionReleaseOnCancel, GracefulShutdownTimeout, LeaseDuration, RenewDeadline and RetryPeriod
// mean what package chubbylock says of them; those that describe a Lease have no effect. The error is
// InvalidArgument, and names the field, for options that contradict this; others are those of
// manager.New.
func NewManager(config *rest.Config, o manager.Options, lock *chubbylock.Lock) (manager.Manager, error) {
	if err := check(o, lock); err != nil {
		return nil, fmt.Errorf("manager with a Chubby lock: %w", err)
	}
	o.LeaderElection = true
	o.LeaderElectionResourceLockInterface = lock
	m, err := manager.New(config, o)
	if err != nil {
		return nil, err
	}
	return &electedManager{Manager: m, lock: lock}, nil
}

// Add adds a runnable to the manager, guarded if it needs leader election.
func (m *electedManager) Add(r manager.Runnable) error { return m.Manager.Add(Guard(m.lock, r)) }

// check returns what is wrong with the options.
func check(o manager.Options, lock *chubbylock.Lock) error {
	if lock == nil {
		return api.Errorf(api.InvalidArgument, "lock is nil; want one of chubbylock.New")
	}
	var faults []error
	if other := o.LeaderElectionResourceLockInterface; other != nil && other != lock {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Options.LeaderElectionResourceLockInterface is another lock, a %T; leave it nil", other))
	}
	lease, renew, retry := or(o.LeaseDuration, defaultLeaseDuration), or(o.RenewDeadline, defaultRenewDeadline), or(o.RetryPeriod, defaultRetryPeriod)
	if retry <= 0 {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Options.RetryPeriod is %v; want more than 0", retry))
	}
	if renew <= retry+retry/5 { // client-go's jitter
		faults = append(faults, api.Errorf(api.InvalidArgument, "Options.RenewDeadline is %v; want more than 1.2 times the RetryPeriod of %v", renew, retry))
	}
	if lease <= renew {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Options.LeaseDuration is %v; want more than the RenewDeadline of %v", lease, renew))
	}
	return errors.Join(faults...)
}

func or(d *time.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return *d
}
