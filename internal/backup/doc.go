// Package backup is the format of backups: everything that a cell replicates, at one moment, in one file that
// checks itself.
//
// A backup is
//
//	magic | record(about) | chunk… | end | SHA-256
//
// where a record and a chunk are a uvarint length and that many bytes, the end is a chunk of length 0, the chunks
// together are a snapshot (package raftfsm), and the sum covers everything before it. What it
// is about is JSON, so that people can read the beginning of the file.
//
// The key that signs what clients carry is not in it: with a backup alone nobody can make a session or a handle.
// Contents are, and as they are: who can read the file can read all of the cell's files.
package backup
