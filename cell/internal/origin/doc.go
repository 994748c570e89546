// Package origin says which connections come from one place, and share the bounds of it.
//
// The rule it upholds: what one machine may have does not grow with the addresses that it takes.
//
// Package wire, for the port of clients, package peer, for that of the other replicas, and package console use it. It
// keeps nothing, and is safe for concurrent use.
package origin
