// Package e2e tests Chubby as its users have it: the two binaries, five processes, a disk with
// fsync, sockets, and kill -9. It holds tests only. Each tests a promise of docs/promises.md or of the
// command line's help.
//
// A test that kills, stops or counts something in the cell has a cell of its own, on ports of its
// own. The others share one, in which each has a directory. What waits for leases and processes runs
// beside other tests; what measures how long something takes runs alone. No process is stopped but by
// pid.
package e2e
