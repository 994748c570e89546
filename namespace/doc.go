// Package namespace is the tree of a cell: its files and directories, their
// four generations, their ACL names, the locks on them, the delays that failed
// holders left behind, and the handles that have ephemeral nodes open (Chubby
// §2.3, §2.4).
//
// A Tree is a value. Copying one takes a snapshot in constant time (Snapshot
// does that while it is changed in place, see Edit), every
// operation is a deterministic function of the tree and its arguments, and an
// operation that returns an error has changed nothing. The package uses no
// clock, no goroutine, no lock, no randomness and no map order. It knows
// sessions and handles only as numbers, and time only as the lengths of
// lock-delays.
//
// Every operation accepts every argument, because arguments come out of a log:
// the answer to an invalid one is a *refusal.Refusal, never a panic. The
// refusal calls the node "the node"; the caller knows the cell's name and adds
// the operation and the path. Errors of code api.Corrupt come only from a
// damaged snapshot or from a counter that went back.
//
// The package says which principals an ACL admits and how much room a quota
// leaves, but its operations check neither: the caller does. It has no queue: a
// lock is granted or refused at once.
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
// The package checks the shape of names, not their letters: api.Path has
// checked those. A change of a node copies its lists of holders and openers, so
// the n-th shared holder of a lock costs O(n). A dying directory stays until
// its last child is gone; then the caller must call Remove again. Locked reads
// the index of everything that sessions hold and have open.
package namespace
