// Package names lets clients find the replicas of a cell by the cell's name: [DNS] keeps the SRV records of the cell in a zone, by
// dynamic updates (RFC 2136), and [Hook] runs a program for any other way.
//
// Both publish the whole list each time, so the next time corrects a list that was published twice, or late.
package names
