// Package master is a replica's mastership in one epoch: what only the master knows, and
// what it does with it (Chubby §2.4 to §2.9). Only packages below cell use it: the wire
// calls the parts of a Master, and cell makes and ends one for each epoch.
//
// The rule it upholds: whatever is promised to a client is either in the log or was
// proved by the fence after the client asked; and what a master keeps in memory dies with
// its epoch.
//
// # Parts
//
// Calls are served by four parts: Sessions (leases, KeepAlives), Files (handles, reading
// and changing nodes), Locks (the queues, grants, sequencers) and Inspector (listings for
// operators). Beneath them are parts that no call names:
//
//   - offers hands locks to those who wait, and takes back what a command did not grant;
//   - publisher puts events into the mailboxes of the sessions;
//   - coherence has a change wait until nobody has the node in a cache any more;
//   - revocations takes locks and sessions away from clients that have not let go;
//   - remover removes ephemeral nodes that nobody has open;
//   - observer turns results of the log into what the tables say;
//   - timekeeper does what is due because time has passed;
//   - journal writes the log.
//
// All of them have the epoch in common: the replicated state, the log (by way of the
// proposer), the fence and the clock. What they keep is in tables, which know none of
// this and are tested alone: leases, mailboxes, handles, queues, hold times, delays, the
// copyset (who caches what), the outbox (what is still to be proposed) and usages (what
// sessions do that may be misuse).
//
// The package knows no protobuf, no Raft, no sockets and no files: it is given a Log, a
// Fence, a clock and a Connection, and tests give it others.
//
// # Concurrency
//
// epoch.mu guards all tables. It is never held while anything is waited for, and for
// maxSteps steps at most: longer work calls pause, after which the tables may be
// different. Under it the proposer's mutex may be taken (to hand a command over), or that
// of a parked KeepAlive (to wake it, or to have it wait on); nothing is called back that could take it again: what
// KeepAlive.Notify is given only has another goroutine go on. A call that has
// paused may hold the line of epoch.mu (pausingMutex.line, in pause.go) while it waits
// for epoch.mu; nobody takes the line who holds epoch.mu. So the order is
//
//	epoch.mu.line > epoch.mu > proposer.mu
//	epoch.mu > parked.mu
//
// Nothing is logged under epoch.mu: lines are put into the journal, which writes them.
//
// Goroutines of a Master are the proposer's, the journal's, the timekeeper's two, the remover's and that of the check points.
// They end with the context of the epoch, and Wait waits for them.
package master
