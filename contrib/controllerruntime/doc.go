// Package chubbyleader elects the leader among managers of sigs.k8s.io/controller-runtime by a Chubby
// cell, in place of a Lease of the API server.
//
//	lock, err := chubbylock.New(chubbylock.Config{Path: "/ls/local/leader", Identity: hostname})
//	defer lock.Close(ctx)
//	mgr, err := chubbyleader.NewManager(config, ctrl.Options{LeaderElectionReleaseOnCancel: true}, lock) // instead of ctrl.NewManager
//
// The rest of the program stays as it is: controllers and runnables are added to mgr, and mgr.Start runs
// them.
//
// # What controller-runtime does by itself
//
// A manager runs its own elector, and gives its runnables a context that ends when the manager is
// stopped, and not when the leadership is lost. It notices a loss up to RetryPeriod and RenewDeadline
// later, returns from Start at once, without waiting for its runnables, and expects that the program
// then exits. Until it has, another manager may lead. Setting
// manager.Options.LeaderElectionResourceLockInterface to a chubbylock.Lock does not change that.
//
// # What NewManager adds
//
// Each runnable that needs leader election, so each controller, is guarded (Guard): its context ends
// before another manager can have the lock, and has the sequencer of the leadership
// (chubbylock.FromContext), also in Reconcile. The lock is not released while a runnable is at work,
// even if the manager has given up waiting for it (Options.GracefulShutdownTimeout). When the
// leadership is lost, the guarded runnables return that as an error, so that Start returns it
// (LockLost) as soon as they have stopped, and not RenewDeadline later.
//
// Runnables that do not need leader election, webhooks, caches and servers are left as they are.
//
// # Reconcile
//
// The context of Reconcile is derived from the guarded one: it ends with it, but its Err does not read
// the clock. CheckLeadership does; call it before an action that must not be done by two. A process may
// still be stopped between that check and the action. The servers that the action uses can prevent that:
// send them the sequencer, and let them check it (package sequencer). The API server does not.
//
// # After a loss
//
// Start has returned an error. The program exits and is started again, as always with
// controller-runtime; or it makes another manager with the same Lock, which may lead again.
package chubbyleader
