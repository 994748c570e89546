// Package cowmap is a sorted map that is a value: a copy of it is a snapshot, taken in
// constant time, and later changes of either are not seen in the other. It is a B-tree
// whose nodes are copied when they change.
//
// A map for which Edit was called changes in place what it has copied since, so many
// changes copy each node once. Such a map must not be copied; Snapshot takes a snapshot
// of it.
//
// A snapshot may be read by any number of goroutines while one goroutine changes the
// original. A map must not be changed inside of a loop over it.
package cowmap
