// Package cell is one replica of a cell and, while it leads, the master (Chubby §2.2).
// Programs that run replicas use it: chubbyd, celltest, and tests.
//
// It connects the packages below it:
//
//	internal/wire      the gRPC services: decode, check, one call of the master, encode
//	internal/master    one epoch: sessions, queues, caches, events, proposals
//	internal/peer      what replicas say to each other: port, probes, fence, transport
//	internal/disk      what a replica keeps: directory, stores and their checks, votes
//	internal/identity  who a replica is; disk keeps it, and peer shows it to the others
//
// From the wire to the log and back: wire decodes a call and makes one call of the master;
// the master decides and hands commands to its proposer, which puts them into the Raft
// log; the state machine (package raftfsm) applies them; the master observes what they
// did, and answers. Reads, lease grants and sequencer checks pass the fence instead of
// the log.
//
// This package starts all of it, in the order of Replica.start, and stops it in the
// reverse order; runEpochs makes a master when Raft has elected this replica, and drops it.
//
// The rule it upholds: being master is having a master.Master. There is one at most, for
// the term in which this replica leads Raft.
//
// # Concurrency
//
// Replica owns a goroutine that follows Raft's elections (runEpochs), which owns one for each
// epoch; those of the gRPC and HTTP servers, and of what tells TLS from plain requests at the http port (sniffer); and those of the rooms
// below (see there). Stop waits for all of them. Replica.mu guards few fields, and nothing is taken under it.
package cell
