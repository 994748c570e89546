// Package cell is one replica of a cell and, while it leads, the master (Chubby §2.2). Programs that run
// replicas use it: chubbyd, celltest, and tests.
//
// It connects the packages below it:
//
//	internal/wire      the services, in frames and over gRPC: decode, check, one call of the master, encode
//	internal/master    one epoch: sessions, queues, caches, events, proposals
//	internal/peer      what replicas say to each other: port, probes, fence, transport
//	internal/disk      what a replica keeps: directory, stores and their checks, votes
//	internal/identity  who a replica is; disk keeps it, and peer shows it to the others
//
// A call goes from the wire to the log and back: wire decodes it and calls the master; the master decides and
// hands commands to its proposer, which puts them into the Raft log; the state machine (package raftfsm)
// applies them; the master observes the results and answers. Reads, lease grants and sequencer checks pass the
// fence instead.
//
// Replica starts all of it, in the order of Replica.start, and stops it in reverse. Each of its parts has its own
// state and follows Raft's elections, or observes:
//
//	epochs       makes a master when Raft elects this replica (epochs.go)
//	handOvers    passes the mastership on, also that of a master whose process has died (transfer.go, deadmaster.go)
//	membership   changes the cell's replicas, as the roster says (membership.go)
//	checks       compares this replica with the others (contradiction.go)
//	publisher    publishes where the replicas are (publish.go)
//	backups      takes backups at set times (schedule.go)
//	credentials  reads certificates and the keys of tokens (certificates.go)
//	outages      leaves the cell without a master, for drills (transfer.go)
//
// They know nothing of Replica, and little of each other. They stand on mastership, which says whether this replica
// is the master, and on member below it: Raft as it runs here, and the other replicas as this one knows them
// (members.go).
//
// The rule it upholds: being master is having a master.Master. There is at most one, for the term in which this
// replica leads Raft.
//
// # Concurrency
//
// Replica owns the goroutines that startParts begins, one for each thing that its parts follow, watch or repeat;
// epochs owns one for each epoch, and handOvers one for a hand-over. Replica also owns those of the servers; of
// sniffer, which tells TLS from plain requests at the http port; of the log's queue; and of the packages below. Stop
// waits for all of them, on a goroutine of its own that is left behind if the disk hangs, as fail does. Replica.mu
// guards few fields; nothing else is locked under it.
package cell
