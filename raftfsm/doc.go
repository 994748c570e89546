// Package raftfsm is the replicated state machine of a cell: everything that
// every replica holds, the commands that change it, and the form both take in
// the Raft log and in snapshots.
//
// The rule it upholds: State.Apply is total and deterministic, and its return
// value is its only output. It reads no clock, draws no random number, ranges
// over no map and calls nobody back; whatever a caller can do wrong is an
// answer, not a failure. Identifiers come out of replicated counters. Time
// enters the log only as decisions about time (a session ended, a lock-delay
// is over), and as a wall clock reading that is shown to people and never
// compared.
//
// Every entry carries the epoch of the master that proposed it, and is refused
// if that is not the term of its log entry or if that master has not announced
// itself with NewEpoch: what a deposed master decided late changes nothing.
//
// A State is a value that is copied in constant time; FSM publishes one after
// each batch, so readers and snapshots never wait for writers nor hold them up.
//
// Who may create, take away or limit something is decided here, by the ACLs as
// they are when the command's turn has come. What a handle was opened for, and
// when anything is to happen, is the master's to decide (package cell); the tree
// and the table (packages namespace and session) uphold their own rules.
package raftfsm
