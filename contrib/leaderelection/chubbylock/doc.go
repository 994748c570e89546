// Package chubbylock lets programs that elect a leader with
// k8s.io/client-go/tools/leaderelection use a Chubby cell: Lock is a
// resourcelock.Interface that replaces a LeaseLock.
//
//	lock, err := chubbylock.New(chubbylock.Config{Path: "/ls/local/leader", Identity: hostname})
//	defer lock.Close(ctx)
//	err = chubbylock.Run(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		ReleaseOnCancel: true, Callbacks: …,
//	})
//
// Run is like RunOrDie, and guarantees that there is never more than one
// leader. RunOrDie and LeaderElector.Run work as well, see below.
//
// # Who leads
//
// client-go's own locks are a record with a name and a time in it. A candidate that has not seen
// the record change for a LeaseDuration, by its own clock, replaces it. The old leader may still be
// at work, because it was stopped, or because its next renewal is not due yet. Here the leader is
// the holder of the Chubby lock on a file. It writes the record into the file, with its sequencer
// as the condition (client.IfSequencer) and in the record. So the cell accepts a record that names
// a leader only while that leader holds the lock, and Get returns it to others only while the cell
// says that its sequencer is valid.
//
// What the elector's settings mean here:
//
//   - LeaseDuration has no effect. A leader that fails is replaced after the
//     lease of its session, Config.Client.Lease (12 s), Config.LockDelay, and at most 2 s more.
//   - RetryPeriod is how often the leader checks its lock. The check uses the local clock;
//     it writes nothing and makes no call. RetryPeriod is also the shortest time between two
//     calls of Get of a candidate.
//   - RenewDeadline is how long an elector that Run does not run continues to lead
//     after its lock was lost; and how long a release waits for the work to stop.
//   - ReleaseOnCancel: false leaves the lock to expire, as in client-go, unless
//     the work was guarded: then it is known to have stopped, and the lock is
//     released.
//   - Coordinated is not supported; Run refuses it.
//
// # Hand-over
//
// A candidate's Get waits in the queue of the lock. When it has the lock it returns a record
// without a leader; the Create or Update that follows writes the candidate's own. So a release
// takes effect at once, in the order of the queue, and not at the next RetryPeriod. To report a new
// leader (OnNewLeader), Get returns without the lock. The elector then pauses for 1 to 2.2
// RetryPeriods, and is not in the queue meanwhile.
//
// # Work
//
// The elector checks its lock every RetryPeriod, and so cannot stop the work in time when the lock
// is lost. Guard can: its context ends with the lock, a client.Margin before another can hold it,
// or at once when it was taken away. The context's Err reads the clock, so that a process that was
// stopped notices the end before it does anything. The lock is never released before the work has
// reported that it has stopped. Run guards OnStartedLeading in this way, and ends the elector when
// the lock is lost.
//
// A process may be stopped between a check and the work after it. No local rule prevents that. The
// servers that the work uses can: send them the sequencer (FromContext), and let them check it
// (package sequencer).
//
// Without Run and Guard, an elector is only as safe as its OnStartedLeading is quick to stop when
// its context ends, which is up to RetryPeriod and RenewDeadline after the loss. The cell gets no
// acknowledgement for the loss of such a lock: others get the lock when lease and lock-delay have
// ended.
//
// # Sessions and goroutines
//
// A Lock opens a session with the first call of Get, and another one when that is lost
// (client.Keeper). While a Get waits for the lock it has one goroutine, which receives events of new
// records. A guarded context has no goroutine.
//
// A leadership that has ended does not come back: when the lock is lost, the same Run of the
// elector cannot win again, because the work would not begin again. The next Run can.
package chubbylock
