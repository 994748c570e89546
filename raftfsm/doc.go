// Package raftfsm is a cell's replicated state machine: the state that every replica holds, the commands that
// change it, and their encoding in the Raft log and in snapshots.
//
// State.Apply accepts everything and is deterministic; its return value is its only output. It reads no clock,
// draws no random number, ranges over no map and calls nothing back. A caller's error leads to an answer, not a
// failure. Identifiers come from replicated counters. Time enters the log only as decisions (a session or a
// lock-delay has ended), and as a wall clock reading for people.
//
// Every entry has the epoch of its master. Apply rejects it if that is not the log entry's term, or before that
// master's NewEpoch. So late decisions of a deposed master change nothing.
//
// A State is a value. State.Snapshot takes a snapshot in constant time, which any number of goroutines may
// read. Between snapshots the state changes in place. The package does not use Raft; cell/internal/fsm connects
// a State to it, and takes the snapshots that are read.
//
// This package decides, by the ACLs at the time of the command, who may create, revoke or limit something. The
// master decides what a handle's rights allow, and when anything happens (package cell). The packages namespace
// and session keep the rules of tree and table.
//
// # Who may use it
//
// Package cell and the packages below it: the master proposes commands and acts on their results;
// cell/internal/fsm applies them. Other modules should not import it. Its names may change without a line in
// the changelog; the formats of logs and snapshots do not, see below.
//
// # Feature levels
//
// A cell is upgraded replica by replica, so two versions apply the same log for a while, and must compute the
// same state. Therefore a command's effect depends on State.Level, not on the binary. A cell begins at the
// level of its first binary (MaxLevel). An operator raises it with RaiseLevel when every replica's binary knows
// the new one. A replica stops if the level is above its highest.
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
