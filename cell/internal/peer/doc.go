// Package peer is the conversation of replicas: the hello that opens every connection of a Raft port, with the
// passport in it; then Raft, probes and bootstraps; and what the fence and the comparison conclude.
//
// The port (port.go, handshake.go) owns the connections. The transport (transport.go) is Raft's side of it, the
// prober (prober.go) asks replicas for their terms, and the fence (fence.go) proves leadership with the answers.
//
// Two replicas talk only if both are of the same cell, each comes from the data directory that the cell knows,
// and each holds what it is known to have held. A proof of leadership counts only answers to questions that
// were asked after its caller came.
//
// Only package cell may use it. It does not touch the disk: functions give it the replica's identity and last index.
//
// Goroutines: the port has one that accepts, one for each inbound connection, and the transport's, which passes
// messages to Raft; the prober one for each replica and each connection; each of Raft's pipelines one. The
// Close of Transport, Prober and pipeline waits for them. A round of a bootstrap waits for one for each member
// it asks. The fence has none.
//
// Mutexes, in their order: that of a fence, of the prober, of one replica in the prober. Those of the port, the
// passport, the comparison and Raft's log are taken alone. None is held across I/O.
package peer
