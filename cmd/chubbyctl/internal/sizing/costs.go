package sizing

import (
	_ "embed"
	"encoding/json"
)

// Cost is what one of something takes while it is there, or what doing it once takes; of an empty replica, what that takes.
type Cost struct {
	Memory   float64 `json:"memory"`      // bytes of the master, with as much garbage as Go lets lie; no other replica needs more
	Snapshot float64 `json:"snapshot"`    // bytes, on the disk of every replica, for each snapshot
	Disk     float64 `json:"disk"`        // bytes, with an empty log
	Master   float64 `json:"master_ns"`   // processor time of the master
	Follower float64 `json:"follower_ns"` // of each other replica
	Clients  float64 `json:"clients"`     // bytes between clients and the master
	Replica  float64 `json:"replica"`     // bytes between the master and each other replica; of an empty replica in a second
	Log      float64 `json:"log"`         // bytes in the log of every replica

	MasterCores   float64 `json:"master_cores"`
	FollowerCores float64 `json:"follower_cores"`
}

// Costs are what was measured.
type Costs struct {
	Date    string `json:"date"`
	Machine string `json:"machine"`
	Version string `json:"version"`
	Quiet   bool   `json:"quiet"` // nothing else ran: the load was below a tenth of a processor before

	Base    Cost `json:"base"`
	Session Cost `json:"session"`
	Program Cost `json:"program"` // the two connections of a program that shares them with no other, with TLS; beside its session
	Handle  Cost `json:"handle"`
	Node    Cost `json:"node"` // an empty file
	Byte    Cost `json:"byte"` // of contents
	Lock    Cost `json:"lock"` // held, beside its node and handle
	Copy    Cost `json:"copy"` // a name in one client's cache

	Write     Cost `json:"write"` // of WriteBytes
	Read      Cost `json:"read"`  // of as many, from the master
	Turn      Cost `json:"turn"`  // of a lock: Acquire and Release
	KeepAlive Cost `json:"keepalive"`
	Event     Cost `json:"event"` // one client is told of one change

	WriteBytes  float64 `json:"write_bytes"`        // of contents, of Write and Read
	MostWrites  float64 `json:"most_writes"`        // a second, of 64 clients: all that this machine could do, with the clients on it
	MostEntries float64 `json:"most_entries"`       // of the log, a second, in these
	Interval    float64 `json:"keepalive_interval"` // seconds from one KeepAlive of a session to the next, with a lease of usualLease
}

//go:embed costs.json
var measured []byte

// Measured returns the costs that were measured.
func Measured() (c Costs, err error) { return c, json.Unmarshal(measured, &c) }
