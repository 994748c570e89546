// Package master is a replica's mastership in one epoch: what only the master knows and does (Chubby §2.4 to
// §2.9). Only cell and packages below it use it. The wire calls the parts of a Master; cell makes and ends one for
// each epoch.
//
// The rule: each promise to a client is in the log, or the fence proved it after the client asked. A master's
// memory dies with its epoch.
//
// # Parts
//
// Four parts serve calls: Sessions (leases, KeepAlives), Files (handles, reading and changing nodes), Locks
// (queues, grants, sequencers) and Inspector (listings for operators). Beneath them:
//
//   - offers hands locks to waiters, and takes back what a command did not grant;
//   - publisher puts events into the sessions' mailboxes;
//   - coherence delays a change until no cache has the node;
//   - revocations takes locks and sessions from clients that have not let go;
//   - remover removes ephemeral nodes that no session has open;
//   - observer applies results of the log to the tables;
//   - timekeeper does what is due at a time;
//   - waitGraph finds requests that wait for each other;
//   - reports hears what happened, and keeps hold times and usages (what may be misuse), counts and logs.
//
// All share the epoch: the replicated state, the log (through the proposer), the fence and the clock. Their
// data is in package tables, which knows none of this: leases, mailboxes, handles, queues, delays, the copyset
// (who caches what) and the outbox (what is still to be proposed).
//
// The package knows no protobuf, Raft, sockets or files: it gets a Log, a Fence, a clock and a Connection.
//
// # Concurrency
//
// epoch.mu guards all tables. Its holder never waits, and takes at most maxSteps steps. Longer work pauses: it
// releases epoch.mu and takes it again, and the tables may be different, so code looks again at what it took from
// them. Only a function that gets a hold, as mu, may pause, or call one that does. Under epoch.mu a goroutine may
// take the proposer's mutex, to hand a command over, or that of a parked KeepAlive, to wake or rest it. Callbacks
// under it do not take it again: that of KeepAlive.Notify only wakes a goroutine. A patient call that has paused
// holds the line of epoch.mu (pausingMutex.line) while it waits for epoch.mu; no holder of epoch.mu takes the
// line. The order:
//
//	epoch.mu.line > epoch.mu > proposer.mu
//	epoch.mu > parked.mu
//
// Functions of Config and Metrics may take a mutex of their own under epoch.mu, and nothing under that. Code under
// epoch.mu writes no log lines: it gives them to the journal.
//
// A Master has goroutines for the proposer, the journal, the remover and the check points, and two for the
// timekeeper, and one for each backup in progress. They end with the epoch's context, and Wait waits for them. The
// proposer's observes the log's results; a loop of the timekeeper ends expired sessions; all else runs in calls. The
// goroutine that serves a KeepAlive (package wire) sends its events.
package master

import "github.com/chubbylock/chubby/cell/internal/master/tables"

// Callers of a master see these of the tables.
type (
	// Handle is a client's copy of a handle.
	Handle = tables.Handle
	// EventSet is a set of event kinds.
	EventSet = tables.EventSet
	// Event is an event for one session.
	Event = tables.Event
	// LockRequest is what a client asks of a lock.
	LockRequest = tables.LockRequest
	// Ticket is a place in the queue of one lock.
	Ticket = tables.Ticket
)
