// Package durable makes files and their names survive a crash of the machine, and locks files against other
// processes. To leave the old or the new contents of a file after a crash, write the new ones to another name
// (WriteFile), rename that over the old file, and sync the directory (SyncDir).
package durable
