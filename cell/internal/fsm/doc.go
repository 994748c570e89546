// Package fsm gives the replicated state (package raftfsm) to Raft, and the state that
// there is to everyone else.
//
// # Goroutines and locks
//
// Raft calls Apply, ApplyBatch, Snapshot and Restore from one goroutine, which alone
// changes the state; Persist runs in another. State and HistoryAt are for any goroutine.
// The room has no goroutine, and one lock: it is held while a batch is applied and while a
// snapshot of the state is taken, which all readers get until the next one. Nothing but
// package raftfsm, and what OnCheckPoint was given, is called with it held.
package fsm
