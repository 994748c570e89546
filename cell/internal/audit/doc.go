// Package audit writes the audit log of a replica, one JSON object a line: acts that only operators may do, changes
// of rights, and refusals.
//
// It never drops an act in silence: one that cannot be written goes to the replica's own log, as an error, and is
// counted. Refusals cost strangers nothing, so they have a file of their own, and cannot push acts out of their
// files or the queue. At most boundedPerSecond of their bytes are written, after a burst; another line counts the
// rest. Acts of callers without a known right are bounded with them: anybody can give a call up. Nobody waits
// for the disk for longer than actWait, and a refused caller does not wait at all.
//
// A file is appended to, and synced after each batch with an act in it. At its full size it is renamed and begun
// anew, unless somebody else does that: a file that was renamed or removed is noticed before the next line, and
// opened again. A pipe, or any other irregular file, takes everything.
//
// # Concurrency
//
// A Log is for any goroutine. It has one of its own, which alone touches the files and ends with Close. The mutex
// is held for a few instructions.
package audit
