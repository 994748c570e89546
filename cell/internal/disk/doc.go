// Package disk is what a replica keeps: its data directory, with the Raft log, the votes and the snapshots, and
// the free space on the disk.
//
// datadir.go locks the directory and knows its replica (the marker and, in identityfile.go, the identity);
// logstores.go lists the kinds of log; stores.go opens and checks everything. Raft uses the stores through the
// fail-stop wrappers: they end the replica at the first error, and silence it first when the disk stalls. While the
// replica leads, pendinglogs.go writes commands in the background, and Raft sends them meanwhile. A commit mark, a note
// of the log's end and checksums reveal losses.
//
// What a replica has acknowledged is on its disk, or the replica does not run. Every error of a store is final.
// A directory is refused if something in it is missing, damaged or another replica's.
//
// Only package cell, and the tests of its neighbours, may use it.
//
// Goroutines: failStop.callOnGoroutine starts one and waits for it. pendingLogs has one while entries are pending;
// Stores.Close waits for it. The watchdog's timers call Options.Silence and Options.Fatal on their own, while the
// operation still hangs. Space.Watch runs on its caller's.
//
// Mutexes: those of the fail-stop wrappers, the pending entries, the commit mark, the votes and a watched operation are
// never held together, and none across I/O.
package disk
