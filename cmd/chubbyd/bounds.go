package main

import (
	"fmt"
	"math"

	"github.com/chubbylock/chubby/cell"
)

func boundKeys() []key {
	return []key{
		{"max-connections", "how many connections of clients this replica accepts", count(1, 1_000_000, func(s *settings) *int { return &s.replica.MaxConnections })},
		{"max-connections-per-address", "how many of those from one IP address", count(1, 1_000_000, func(s *settings) *int { return &s.replica.MaxConnectionsPerAddress })},
		{"max-calls-per-principal", "how many calls a second one principal may make; 0: no bound", count(0, 100_000_000, func(s *settings) *int { return &s.replica.MaxCallsPerPrincipal })},
		{"max-new-sessions-per-principal", "how many sessions a second one principal may open; 0: no bound", count(0, 1_000_000, func(s *settings) *int { return &s.replica.MaxNewSessionsPerPrincipal })},
		{"max-calls-per-address", "how many calls a second may come from one IP address; 0: no bound", count(0, 100_000_000, func(s *settings) *int { return &s.replica.MaxCallsPerAddress })},
		{"max-handshakes-per-address", "how many connections a second may be opened from one IP address; 0: no bound", count(0, 1_000_000, func(s *settings) *int { return &s.replica.MaxHandshakesPerAddress })},
		{"client-memory-mib", "how much memory the calls of clients may hold, in MiB; those of an address a quarter of it", count(cell.MinClientMemoryMiB, 1<<20, func(s *settings) *int { return &s.replica.ClientMemoryMiB })},
		{"max-contents-mib", "how much the cell may hold, in MiB: contents (those of access control lists three times), names, and 1 KiB for each node; what makes it more is refused; 0: two fifths of the memory that this process may use", count(0, 1<<20, func(s *settings) *int { return &s.replica.MaxContentsMiB })},
	}
}

// A replica may hold the cell twice, during a snapshot from the master or a restore. The remaining fifth is for
// itself and its clients.
const (
	contentsShare = 2
	ofMemory      = 5
)

// contentsBound returns how many MiB a cell may hold whose replicas have this memory in bytes; 0 if unknown.
func contentsBound(memory int64) int {
	if memory == math.MaxInt64 {
		return 0
	}
	return max(1, int(memory/ofMemory*contentsShare>>20))
}

// contentsWarning warns if the cell may hold more than the memory allows.
func contentsWarning(s settings, memory int64) []string {
	fits := contentsBound(memory)
	if fits == 0 || s.replica.MaxContentsMiB <= fits {
		return nil
	}
	return []string{fmt.Sprintf("max-contents-mib: %d are more than two fifths of the memory that a replica may use here, %d MiB: one that catches up with the master has what the cell holds twice; more than %d may end it",
		s.replica.MaxContentsMiB, memory>>20, fits)}
}
