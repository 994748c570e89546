// Package chubby is the front page of the module and holds no code.
//
// Chubby is a lock service for loosely coupled machines, after Burrows, "The
// Chubby lock service for loosely-coupled distributed systems" (OSDI 2006): a
// cell of five replicas agrees on a small tree of files, each of which is also
// a reader-writer lock. Programs import package client and, above it, package
// client/recipe; servers that a lock protects import package sequencer; the
// daemon is cmd/chubbyd and the command line cmd/chubbyctl. The tests here are
// the laws that every other package of the module keeps.
package chubby
