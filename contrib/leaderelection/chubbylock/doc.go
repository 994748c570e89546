// Package chubbylock lets programs that elect a leader with
// k8s.io/client-go/tools/leaderelection do so through a Chubby cell: Lock is a
// resourcelock.Interface, to be put where a LeaseLock was.
//
//	lock, err := chubbylock.New(chubbylock.Config{Path: "/ls/local/leader", Identity: hostname, LockDelay: 10 * time.Second})
//	defer lock.Close(ctx)
//	err = chubbylock.Run(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		ReleaseOnCancel: true, Callbacks: …,
//	})
//
// Run is RunOrDie for which at most one leader is more than a hope; RunOrDie and
// LeaderElector.Run work as well, see below.
//
// # Who leads
//
// client-go's own locks are a record with a name and a time in it: whoever has
// not seen it change for a LeaseDuration, by its clock, replaces it. The leader
// of before may be at work still, because it was stopped, or has not come to its
// next renewal. Here the leader is who holds the Chubby lock on a file, and the
// record is what that holder writes into the file, with its sequencer as the
// condition (client.IfSequencer) and in it. So a record that names somebody was
// written while that one held the lock, and Get shows it to others only while the
// cell says that its sequencer is valid.
//
// What the elector's settings mean here:
//
//   - LeaseDuration decides nothing. A leader that fails is replaced after the
//     lease of its session, Config.Client.Lease (12 s), Config.LockDelay, and at most 2 s more.
//   - RetryPeriod is how often the leader looks at its lock, by the local clock;
//     nothing is written and nobody asked. It is also the least time between two
//     calls of Get of a candidate.
//   - RenewDeadline is how long an elector that is not run by Run goes on to
//     believe that it leads after its lock was lost; and how long a release waits
//     for the work to stop.
//   - ReleaseOnCancel: false leaves the lock to expire, as in client-go, unless
//     the work was guarded: then it is known to have stopped, and the lock is
//     released.
//   - Coordinated is not supported; Run refuses it.
//
// # Hand-over
//
// A candidate's Get waits in the queue of the lock and returns when it has it,
// with the record that nobody leads; the Create or Update that follows writes the
// candidate's own. So a release takes effect at once, in the order of the queue,
// and not at the next RetryPeriod. Get returns without the lock when a leader is
// to be reported that has not been yet (OnNewLeader). The elector then pauses for
// one RetryPeriod to 2.2 of them, and is not in the queue meanwhile.
//
// # Work
//
// The elector looks at its lock every RetryPeriod, and so cannot stop the work in
// time when the lock is lost. Guard can: the context that it returns ends with the
// lock, a client.Margin before anybody else can hold that, or at once when it was
// taken away; and its Err looks at the clock, so that a process that was stopped
// finds out before it does anything. The lock is not given up, by whatever way,
// before the work has said that it has stopped. Run guards OnStartedLeading so,
// and ends the elector when the lock is lost.
//
// What no local rule prevents, because work may be stopped between looking and
// doing, the servers that it uses prevent: they are sent the sequencer
// (FromContext), and check it (package sequencer).
//
// Without Run and Guard an elector is as safe as its OnStartedLeading is quick to
// stop once its context ends, which is up to RetryPeriod and RenewDeadline after
// the loss. Such a lock, if it is lost, is not acknowledged to the cell: others
// have it when lease and lock-delay are over.
//
// # Sessions and goroutines
//
// A Lock opens a session of its own with the first call of Get, and another when
// that is lost. It has one goroutine for each, which listens for new records;
// Close, or the next session, waits for it. A context that is guarded has none.
//
// A term ends for good: when the lock is lost, the same Run of the elector cannot
// win another, as the work would not begin anew. The next Run can.
package chubbylock
