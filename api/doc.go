// Package api is the vocabulary of Chubby: the identifiers, modes, limits,
// paths and errors that every other room of the project speaks of, and that
// clients and servers agree on.
//
// It holds no behaviour beyond validation and formatting, imports the standard
// library only, starts no goroutine, and reads no clock. Everything in it is a
// value that may be copied and used from several goroutines, and whatever is
// numbered (Code, LockMode, EventKind) keeps its number for ever, because the
// numbers cross the wire and sit in logs.
package api
