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
// Run is a RunOrDie under which there is never more than one leader. RunOrDie and
// LeaderElector.Run work as well, see below.
//
// # Who leads
//
// client-go's own locks are a record with a name and a time in it. A candidate that
// has not seen the record change for a LeaseDuration, by its own clock, replaces it. The
// old leader may still be at work, because it was stopped, or because its next renewal is
// not due yet. Here the leader is the holder of the Chubby lock on a file. It writes the
// record into the file, with its sequencer as the condition (client.IfSequencer) and in the
// record. So a record that names a leader was written while that leader held the lock, and
// Get returns it to others only while the cell says that its sequencer is valid.
//
// What the elector's settings mean here:
//
//   - LeaseDuration decides nothing. A leader that fails is replaced after the
//     lease of its session, Config.Client.Lease (12 s), Config.LockDelay, and at most 2 s more.
//   - RetryPeriod is how often the leader checks its lock, by the local clock; it writes
//     nothing, and asks nobody. It is also the shortest time between two calls of Get of
//     a candidate.
//   - RenewDeadline is how long an elector that Run does not run continues to lead
//     after its lock was lost; and how long a release waits for the work to stop.
//   - ReleaseOnCancel: false leaves the lock to expire, as in client-go, unless
//     the work was guarded: then it is known to have stopped, and the lock is
//     released.
//   - Coordinated is not supported; Run refuses it.
//
// # Hand-over
//
// A candidate's Get waits in the queue of the lock. When it has the lock it returns the
// record that nobody leads; the Create or Update that follows writes the candidate's own.
// So a release takes effect at once, in the order of the queue, and not at the next
// RetryPeriod. Get returns without the lock to report a new leader (OnNewLeader). The
// elector then pauses for 1 to 2.2 RetryPeriods, and is not in the queue meanwhile.
//
// # Work
//
// The elector checks its lock every RetryPeriod, and so cannot stop the work in time when
// the lock is lost. Guard can: the context that it returns ends with the lock, a
// client.Margin before another can hold it, or at once when it was taken away. The
// context's Err reads the clock, so that a process that was stopped notices that before it
// does anything. The lock is not given up, in any way, before the work has reported that it
// has stopped. Run guards OnStartedLeading so, and ends the elector when the lock is lost.
//
// Work may be stopped between a check and what it does then. No local rule helps against
// that. The servers that the work uses do: send them the sequencer (FromContext), and have
// them check it (package sequencer).
//
// Without Run and Guard an elector is as safe as its OnStartedLeading is quick to stop once
// its context ends, which is up to RetryPeriod and RenewDeadline after the loss. The loss of
// such a lock is not acknowledged to the cell: others have the lock when lease and lock-delay
// have ended.
//
// # Sessions and goroutines
//
// A Lock opens a session of its own with the first call of Get, and another one when that is
// lost. For each it has one goroutine, which receives events of new records; Close, or the
// next session, waits for it. A context that is guarded has none.
//
// A leadership that has ended does not come back: when the lock is lost, the same Run of the
// elector cannot win again, because the work would not begin again. The next Run can.
package chubbylock
