// Package cell is one replica of a cell and, while it leads, the master
// (Chubby §2.2).
//
// From the wire to the log and back: service (rpc_*.go) decodes a call and makes
// one call of the master; the master (master.go and the files named for what it
// does: keepalive, files, mutate, locks, look) decides, and hands commands to the
// proposer, which puts them into the Raft log; the state machine (package
// raftfsm) applies them; the master observes what they did, and answers.
// Reads, lease grants and sequencer checks pass the fence instead of the log.
//
// Below that lies Raft: its transport and port, its stores and their guard.
// Replica holds it all together and reign makes and drops masters.
//
// The rule it upholds: whatever is promised to a client is either in the log or
// was proved by the fence after the client asked; and what a master keeps in
// memory dies with its epoch.
//
// Goroutines: Replica owns one that follows Raft's elections (reign), which owns
// one for each epoch, which owns the master's two (proposer and clock loop);
// those of the gRPC and HTTP servers; the port's, the prober's and the
// watchdog's (see there). Stop waits for all of them.
package cell
