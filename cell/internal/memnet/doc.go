// Package memnet is a network in memory, whose waits a testing/synctest bubble understands. Its hosts can be cut off, stopped and refused,
// one by one or for each other. Tests of packages use it, and celltest for whole cells.
package memnet
