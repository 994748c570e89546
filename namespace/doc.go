// Package namespace is the tree of a cell: its files and directories, their
// four generations, their ACL names, the locks on them, the delays that failed
// holders left behind, and who has ephemeral nodes open (Chubby §2.3, §2.4).
//
// The rule it upholds: a Tree is a value. Copying one takes a snapshot in
// constant time, every operation is a deterministic function of the tree and
// its arguments, and an operation that returns an error has changed nothing.
// There is no clock, no goroutine, no lock, no randomness and no map order in
// this package; it knows of sessions and handles only as numbers, and of time
// only as the lengths of lock-delays.
//
// Every operation is total: arguments come out of a log, and whatever they are,
// the answer is a *refusal.Refusal, never a panic. Its message calls the node "the
// node"; what was tried, and on which path, is for the caller to add, who knows the
// name of the cell. Errors of code api.Corrupt can only come from a damaged snapshot
// or a counter that went back.
//
// It says whom an ACL admits and how much room a quota leaves, but leaves it to
// the caller to ask: its operations check neither. It does not know what a
// session is, and does not queue anybody: a lock is granted or refused at once.
//
// # Who may use it
//
// The server side of this module: package raftfsm, whose State holds the tree, and the
// rooms of package cell that read it. It is exported so that it can be read and tested
// by itself. Other modules should not import it: names and behaviour change with what
// a cell needs, without a line in the changelog.
//
// # Limitations
//
// Only the shape of names is checked, not their letters: they come out of an
// api.Path, which has looked at those. A change of a node copies its lists of
// holders and openers, so the n-th shared holder of a lock costs O(n). A dying
// directory stays until its last child is gone, whoever keeps that; then it is
// for the caller to try Remove again. Locked looks through what all sessions
// hold and have open.
package namespace
