// Package recovery reads the state of a cell out of data directories of its replicas, when fewer
// than a majority of them are left, so that no master can be elected any more.
//
// It makes no replica run again. A replica that went on without a majority would break what
// the others, if they came back, had promised. So what is left is made into a backup, from which a new cell is
// restored (docs/adr/0029-a-cell-is-restored-through-its-log.md, docs/adr/0031-recovery-makes-a-backup.md): one
// mechanism, with the same rules for tokens, sessions and guards.
//
// Everything in the directory is applied, committed or not: what was acknowledged may be among the last entries,
// and nobody can tell any more. What only the lost replicas had acknowledged is not there.
//
// A directory is locked while it is open, so no replica runs in it. Opening one does what a replica does when it
// starts: the end of a log that was being written is cut off. Nothing else in it changes.
//
// Functions are for any goroutine; they start none.
package recovery
