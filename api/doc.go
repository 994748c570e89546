// Package api is the vocabulary of Chubby: the identifiers, modes, limits,
// paths, kinds of events and errors that all other packages use, and on which
// clients and servers agree.
//
// It holds no behaviour beyond validation and formatting, imports the standard
// library only, starts no goroutine, and reads no clock. Everything in it is a
// value that may be copied and used from several goroutines. What is numbered
// (Code, LockMode, EventKind) keeps its number permanently, because the numbers
// cross the wire and are in logs.
package api
