// Package names has clients find the replicas of a cell by the cell's name: [DNS] keeps the SRV records of the cell in a zone, by
// dynamic updates (RFC 2136), and [Hook] runs a program that does it in any other way.
//
// Both publish the whole list each time: what is published twice, or after something newer, is put right by the next time.
package names
