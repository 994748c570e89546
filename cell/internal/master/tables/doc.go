// Package tables is what a master keeps in memory for an epoch: handles, queues of locks, mailboxes, copies in
// caches, lock-delays, and what is still to be proposed. It is pure: the mutex of the master (epoch.mu) guards
// all of it, time is an argument, and what a method does not do at once (long work, proposals, events) its
// caller does.
package tables
