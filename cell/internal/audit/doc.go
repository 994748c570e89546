// Package audit writes the audit log of a replica: who did what only an operator may do, who changed
// who may do what, and who was refused; one JSON object a line.
//
// The rules it upholds:
//
//   - An act that was done is never dropped in silence: what cannot be written to the file is written to the
//     replica's own log, as an error, and counted.
//   - Refusals cost strangers nothing, so they have a file of their own: they cannot push acts out of theirs, nor out of those that are
//     kept, nor out of the queue. Of bytes, not only of lines, at most boundedPerSecond go in, after a burst; how many records were left out is in a line
//     of its own. So is what may have been done by callers of whom no right is known: anybody can give a call up.
//   - Nobody waits for the disk for longer than actWait, and who is refused does not wait at all.
//
// A file is appended to, and synced after each batch with an act in it. It is renamed and begun anew when it
// has its full size, unless that is left to somebody else: a file that was renamed or removed is noticed
// before the next line, and opened again. What is no regular file, as a pipe, takes everything.
//
// # Concurrency
//
// A Log is for any goroutine. It has one of its own, which alone touches the files and ends with Close; the one mutex, of
// the allowance for refusals, is held for a few instructions.
package audit
