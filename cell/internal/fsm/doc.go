// Package fsm gives the replicated state (package raftfsm) to Raft, and the state that
// there is to everyone else.
//
// # Goroutines and locks
//
// Raft calls Apply, ApplyBatch, Snapshot and Restore from one goroutine, which alone
// changes the state; Persist runs in another. State and HistoryAt are for any goroutine.
// The room has no goroutine and no lock: the state after a batch is published by one
// atomic store, before Raft returns the results of the batch.
package fsm
