package sizing

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

// Thing is what one of something takes while it is there.
type Thing struct {
	Memory   float64 `json:"memory"`   // bytes of the master, with as much garbage as Go lets lie; no other replica needs more
	Snapshot float64 `json:"snapshot"` // bytes, on the disk of every replica, for each snapshot
}

// Act is what doing something once takes.
type Act struct {
	Master   float64 `json:"master_ns"`   // processor time of the master
	Follower float64 `json:"follower_ns"` // of each other replica
	Clients  float64 `json:"clients"`     // bytes between clients and the master
	Replica  float64 `json:"replica"`     // bytes between the master and each other replica
	Log      float64 `json:"log"`         // bytes in the log of every replica
}

// Base is what a replica takes of which nothing is asked.
type Base struct {
	Memory   float64 `json:"memory"` // bytes
	Disk     float64 `json:"disk"`   // bytes, with an empty log
	Master   float64 `json:"master_cores"`
	Follower float64 `json:"follower_cores"`
	Replica  float64 `json:"replica"` // bytes a second between the master and each other replica
}

// Costs are what was measured. Bytes are of 8 bits, times in nanoseconds.
type Costs struct {
	Date    string `json:"date"`
	Machine string `json:"machine"`
	Version string `json:"version"`
	Quiet   bool   `json:"quiet"` // nothing else ran: the load was below a tenth of a processor before

	Base    Base  `json:"base"`
	Session Thing `json:"session"`
	Program Thing `json:"program"` // the two connections of a program that shares them with no other, with TLS; beside its session
	Handle  Thing `json:"handle"`
	Node    Thing `json:"node"` // an empty file
	Byte    Thing `json:"byte"` // of contents
	Lock    Thing `json:"lock"` // held, beside its node and handle
	Copy    Thing `json:"copy"` // a name in one client's cache

	Write     Act `json:"write"` // of WriteBytes
	Read      Act `json:"read"`  // of as many, from the master
	Turn      Act `json:"turn"`  // of a lock: Acquire and Release
	KeepAlive Act `json:"keepalive"`
	Event     Act `json:"event"` // one client is told of one change

	WriteBytes  float64 `json:"write_bytes"`        // of contents, of Write and Read
	Clients     int     `json:"clients"`            // that wrote, read and locked at a time
	MostWrites  float64 `json:"most_writes"`        // a second, of 64 clients: all that this machine could do, with the clients on it
	MostEntries float64 `json:"most_entries"`       // of the log, a second, in these
	Interval    float64 `json:"keepalive_interval"` // seconds from one KeepAlive of a session to the next, with a lease of usualLease
}

// What a replica does unless it is configured otherwise.
const (
	usualLease     = 12.0     // seconds
	keepAlives     = 2000.0   // a second, that a master wants at most (keepalives)
	snapshots      = 3.0      // that are kept
	logEntries     = 3 * 4096 // that are kept in the log, of a cell that is seldom written to
	snapshotPeriod = 60.0     // seconds from one snapshot to the next, at the latest, of one that is often written to; the log has two of them

	maxConnections           = 40_000 // of clients (max-connections)
	maxConnectionsPerAddress = 4_000
	limitNOFILE              = 65_536 // of the packaged unit
	ownFiles                 = 768    // that a replica keeps of those for itself
)

// connectionsOfProgram is how many connections the library has to the master: one for the session's KeepAlives, one for all other calls.
const connectionsOfProgram = 2

//go:embed costs.json
var measured []byte

// Measured returns the costs that were measured.
func Measured() (Costs, error) {
	var c Costs
	decoder := json.NewDecoder(bytes.NewReader(measured))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("costs.json: %w", err)
	}
	return c, nil
}
