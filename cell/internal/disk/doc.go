// Package disk is what a replica keeps: its data directory, with the Raft log, the
// votes and the snapshots in it, and the room that is left on the disk.
//
// From the directory up: datadir.go locks the directory and knows whose it is
// (the marker and, in identityfile.go, the identity); logstores.go lists the ways
// to keep the log; stores.go opens everything and checks that it is whole; Raft
// then uses the stores through the fail-stop wrappers, which end the replica with
// the first error, and silence it first when the disk stalls. A commit mark, a
// note of the log's end and checksums make a replica notice that it has lost
// something.
//
// The rule it upholds: what a replica has acknowledged is on its disk, or the
// replica does not run. Every error of a store is final, and a directory in which
// something is missing, damaged or of another replica is refused.
//
// Only package cell, and the tests of the rooms beside this one, may use it.
//
// Goroutines: failStop.callOnGoroutine starts one and waits for it.
// The watchdog's timers call Options.Silence and Options.Fatal on goroutines of
// their own, while the operation that they are about still hangs. Space.Watch runs
// on a goroutine of its caller.
//
// Mutexes: those of the fail-stop wrappers, of the commit mark, of the votes and of
// one watched operation are never held together, and none is held across I/O.
package disk
