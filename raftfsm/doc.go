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
// A State is a value that is copied in constant time: a replica publishes a copy after
// each batch of entries, so readers and snapshots never wait for writers nor hold them
// up. The package knows nothing of Raft; cell/internal/fsm gives a State to it.
//
// Who may create, take away or limit something is decided here, by the ACLs as
// they are when the command's turn has come. What a handle was opened for, and
// when anything is to happen, is the master's to decide (package cell); the tree
// and the table (packages namespace and session) uphold their own rules.
//
// # Who may use it
//
// Package cell and its rooms: the master proposes commands and acts on their results, and
// cell/internal/fsm applies them. Other modules should not import it. Its names change
// with what a cell needs, without a line in the changelog; what it writes into logs and
// snapshots does not, see below.
//
// # Feature levels
//
// A cell is upgraded replica by replica, so binaries of two versions apply the same log
// for a while, and must compute the same state. What a command does depends on nothing
// but the state, therefore: on State.Level, not on the binary. A cell begins at the level
// of the binary that bootstraps it (MaxLevel), and an operator raises it with RaiseLevel
// when every replica has a binary that knows the new one. A replica stops that meets a
// level above the one it knows.
//
// Who changes what is in the log or in snapshots, or what a command does, does this:
//
//   - Raise MaxLevel by one, if that was not done since the last release, and say what the
//     level brings.
//   - Let the new behaviour begin with it: if s.Level >= N { … } else { as before }.
//   - Tag each new field of a type that there was already, a new command in Command
//     included, with a number of its own and the level: `cbor:"20,keyasint,omitempty"
//     since:"N"`. A command in which it is set is refused before it is proposed, while the
//     cell is below that level. What Apply writes into records is for Apply to gate.
//   - Give a new refusal.Cause the level (Cause.Level), too.
//   - Never reuse a number, change a field's type, or remove a field: TestFields compares
//     every field with testdata/fields.txt, and says what to do.
package raftfsm
