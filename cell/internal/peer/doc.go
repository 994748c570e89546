// Package peer is what replicas say to each other: the hello that opens every
// connection of a replica's Raft port, with the passport in it; the conversations
// that follow, of Raft, of probes and of a bootstrap; and what is concluded from
// the answers, by the fence and by the comparison of running hashes and of whole states.
//
// The port (port.go, handshake.go) owns the connections. The transport (transport.go) is Raft's
// side of it, the prober (prober.go) asks other replicas for their terms, and the
// fence (fence.go) proves leadership with the answers.
//
// The rule it upholds: two replicas talk only if both are of the same cell, each
// comes from the data directory that the cell knows, and each holds what it is
// known to have held. A proof of leadership counts only answers to questions that
// were asked after its caller came.
//
// Only package cell may use it. It knows nothing of the disk: what a replica holds,
// and who it is, are functions that it is given.
//
// Goroutines: the port owns one that accepts and one for each inbound connection,
// which Transport.Close waits for; the prober one for each replica and one for each of
// its connections, which Prober.Close waits for; the transport one that hands to Raft what
// arrives, and each of Raft's pipelines one, which their Close waits for; and a bootstrap one for each member that it asks in a
// round, which the round waits for. The fence has none of its own.
//
// Mutexes, in the order in which they are taken: that of a fence, of the prober, of
// one replica in the prober. Those of the port, of the passport, of the comparison
// and of Raft's log are taken alone. None is held across I/O.
package peer
