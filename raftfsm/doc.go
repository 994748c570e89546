// Package raftfsm is the replicated state machine of a cell: the state that
// every replica holds, the commands that change it, and the form of both in the
// Raft log and in snapshots.
//
// State.Apply accepts everything and is deterministic, and its return value is
// its only output. It reads no clock, draws no random number, ranges over no
// map and makes no calls back. An error of a caller leads to an answer, not to
// a failure. Identifiers come from replicated counters. Time enters the log
// only as decisions about time (a session has ended, a lock-delay has ended),
// and as a wall clock reading that is shown to people and never compared.
//
// Every entry carries the epoch of the master that proposed it. Apply refuses
// it if that is not the term of its log entry, or if that master has not
// announced itself with NewEpoch: late decisions of a deposed master change
// nothing.
//
// A State is a value: State.Snapshot takes a snapshot of it in constant time,
// which any number of goroutines may read while entries are applied. Between
// two snapshots it is changed in place. The package does not use Raft;
// cell/internal/fsm connects a State to it, and takes the snapshots that are
// read.
//
// This package decides by the ACLs, as they are when the command is applied,
// who may create something, take something away or set a limit. The master
// decides what the rights of a handle allow, and when anything happens (package
// cell). The tree and the table (packages namespace and session) keep their own
// rules.
//
// # Who may use it
//
// Package cell and its rooms: the master proposes commands and acts on their results, and
// cell/internal/fsm applies them. Other modules should not import it. Its names change with what a
// cell needs, without a line in the changelog; the formats of logs and snapshots do not, see below.
//
// # Feature levels
//
// A cell is upgraded replica by replica, so binaries of two versions apply the same log for a
// while, and must compute the same state. Therefore the effect of a command depends on nothing but
// the state: on State.Level, not on the binary. A cell begins at the level of the binary that
// bootstraps it (MaxLevel), and an operator raises it with RaiseLevel when every replica has a
// binary that knows the new one. A replica stops if the level is above the highest that it knows.
//
// If you change what is in the log or in snapshots, or the effect of a command:
//
//   - Raise MaxLevel by one, if that was not done since the last release, and say what the
//     level brings.
//   - Let the new behaviour begin with it: if s.Level >= N { … } else { as before }.
//   - A limit by which Apply refuses something, such as api.MaxContents, is part of the effect:
//     TestLimitsAreThoseOfTheRelease lists them.
//   - Tag each new field of an existing type, a new command in Command included, with a
//     number of its own and the level: `cbor:"20,keyasint,omitempty" since:"N"`. While the
//     cell is below that level, a command in which it is set is refused before it is
//     proposed. Fields that Apply writes into records need a test of the level in Apply.
//   - Give a new refusal.Cause the level (Cause.Level), too.
//   - Never reuse a number, change a field's type, or remove a field: TestFields compares
//     every field with testdata/fields.txt, and says what to do.
package raftfsm
