// Package e2e tests Chubby as its users have it: the two binaries, five processes, a disk with
// fsync, sockets, and kill -9. It holds tests only. Each tests a promise of the README or of the
// command line's help.
//
// Every test has a cell of its own, on ports of its own, and stops it by pid.
package e2e
