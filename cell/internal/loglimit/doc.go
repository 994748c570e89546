// Package loglimit keeps what strangers do at a port from filling the log: one
// line a second says it, with a count of what no line was written for.
//
// The rule it upholds: what is logged about others does not grow with what they do.
//
// Package wire, for the port of clients, package peer, for that of the other
// replicas, and package cell, for the http port, use it. It starts no goroutine; a timer begins the next second
// after each line. Its mutex guards three fields, and nothing is called while it
// is held.
package loglimit
