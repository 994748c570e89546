package sizing

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/chubbylock/chubby/api"
)

// Cost is what one of something takes while it is there, or what doing it once takes; of an empty replica, what that takes.
type Cost struct {
	Memory   float64 // bytes of the master, with as much garbage as Go lets lie; no other replica needs more
	Snapshot float64 // bytes, on the disk of every replica, for each snapshot
	Disk     float64 // bytes, with an empty log
	Master   float64 `json:"master_ns"`   // processor time of the master
	Follower float64 `json:"follower_ns"` // of each other replica
	Clients  float64 // bytes between clients and the master
	Replica  float64 // bytes between the master and each other replica; of an empty replica in a second
	Log      float64 // bytes in the log of every replica

	MasterCores   float64 `json:"master_cores"`
	FollowerCores float64 `json:"follower_cores"`
}

// Costs are what was measured. Program is the two connections of a program that shares them with no other, with TLS, beside its session;
// Node an empty file, Byte one of contents, Lock beside its node and handle, Copy a name in one client's cache; Write and Read are of
// WriteBytes, Turn is Acquire and Release, and Event that one client is told of one change.
type Costs struct {
	Date, Machine, Version string
	Quiet                  bool // nothing else ran: the load was below a tenth of a processor before

	Base, Session, Program, Handle, Node, Byte, Lock, Copy Cost
	Write, Read, Turn, KeepAlive, Event                    Cost

	WriteBytes  float64 `json:"write_bytes"`        // of contents, of Write and Read
	MostWrites  float64 `json:"most_writes"`        // a second, of 64 clients: all that this machine could do, with the clients on it
	MostEntries float64 `json:"most_entries"`       // of the log, a second, in these
	Interval    float64 `json:"keepalive_interval"` // seconds from one KeepAlive of a session to the next, with a lease of usualLease
}

//go:embed costs.json
var measured []byte

// Measured returns the costs that were measured.
func Measured() (c Costs, err error) { return c, json.Unmarshal(measured, &c) }

// What a replica does unless it is configured otherwise.
const (
	usualLease     = 12.0     // seconds
	keepAlives     = 2000.0   // a second, that a master wants at most (keepalives)
	snapshots      = 3.0      // that are kept
	logEntries     = 3 * 4096 // that are kept in the log, of a cell that is seldom written to
	snapshotPeriod = 60.0     // seconds from one snapshot to the next, of one that is often written to; the log has two of them

	maxConnections           = 40_000 // of clients (max-connections)
	maxConnectionsPerAddress = 4_000
	limitNOFILE              = 65_536 // of the packaged unit
	ownFiles                 = 768    // that a replica keeps of those for itself
	connectionsOfProgram     = 2      // to the master: for the session's KeepAlives, and for all other calls
)

// Cell is what a cell is to hold and to do, as the flags of chubbyctl sizing say it. Rates are of a second.
type Cell struct {
	Replicas, Sessions, Programs, Handles, Cached, Nodes, Locks, Watchers int

	Bytes                int64
	Writes, Reads, Turns float64
}

// Validate says what is wrong with it, or "". What passes is far more than any cell has, and so little that bytes of it can be counted.
func (c Cell) Validate() string {
	sessions, handles, cached, watchers := float64(c.Sessions), float64(c.Handles), float64(c.Cached), float64(c.Watchers)
	for _, n := range []float64{
		sessions, float64(c.Programs), handles, cached, float64(c.Nodes), float64(c.Locks), watchers,
		1000 * c.Writes, 1000 * c.Reads, 1000 * c.Turns, sessions * handles, sessions * cached, c.Writes * watchers,
	} {
		if !(n >= 0 && n <= 1e12) {
			return "want of everything, also in all sessions together, 0 to a million millions, and 0 to a thousand millions of it a second"
		}
	}
	if c.Replicas < 1 || c.Replicas > 99 || c.Bytes < 0 || c.Bytes > api.MaxContents {
		return fmt.Sprintf("%d replicas, files of %d bytes: want 1 to 99, and 0 to %d", c.Replicas, c.Bytes, api.MaxContents)
	}
	return ""
}

// Bytes are so many bytes, or so many a second.
type Bytes float64

// MarshalJSON implements json.Marshaler: without the parts of bytes that an average has.
func (b Bytes) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, int64(b), 10), nil }

// Part is a part of what a replica needs, and what it is for.
type Part struct {
	What   string  `json:"what"`
	Memory Bytes   `json:"memory_bytes"`
	Disk   Bytes   `json:"disk_bytes"`
	Cores  float64 `json:"master_cores"`
}

// Need is what each replica of a cell needs: as the master, which every one may become, and as another. Rates are of a second.
type Need struct {
	Memory          Bytes    `json:"memory_bytes"`
	Disk            Bytes    `json:"disk_bytes"` // twice that should be free, since a snapshot is written beside those that are kept
	MasterCores     float64  `json:"master_cores"`
	FollowerCores   float64  `json:"follower_cores"`
	MasterNetwork   Bytes    `json:"master_network_bytes"` // sent and received
	FollowerNetwork Bytes    `json:"follower_network_bytes"`
	Connections     int      `json:"connections"` // of clients
	KeepAlives      float64  `json:"keepalives"`
	Lease           float64  `json:"lease_s"` // the longest that sessions are given, so that there are no more KeepAlives
	Parts           []Part   `json:"parts"`   // the same, part by part
	Notes           []string `json:"notes"`   // what the numbers do not say

	Measured string `json:"measured"`
	Machine  string `json:"machine"`
	Version  string `json:"version"`
	Quiet    bool   `json:"quiet"`
}

// Need computes it.
func (c Cell) Need(costs Costs) Need {
	followers, sessions, nodes := float64(c.Replicas-1), float64(c.Sessions), float64(c.Nodes)
	often := sessions / costs.Interval
	lease := min(usualLease*max(1, often/keepAlives), api.MaxLease.Seconds())
	n := Need{
		Connections: c.Programs * connectionsOfProgram, KeepAlives: often * usualLease / lease, Lease: lease,
		Measured: costs.Date, Machine: costs.Machine, Version: costs.Version, Quiet: costs.Quiet,
	}
	write, read := c.sized(costs.Write, costs), c.sized(costs.Read, costs)
	// An entry of the log has the commands that waited when it was made: more of them, the faster they come.
	changes := c.Writes + 2*c.Turns
	commands := max(1, changes/max(1, costs.MostEntries))
	log := max(logEntries, 2*snapshotPeriod*changes/commands) * commands * max(write.Log, costs.Turn.Log/2)
	empty, logged := costs.Base, Cost{Disk: costs.Base.Disk + log}
	empty.Disk = 0
	for _, of := range []struct {
		what         string
		number, rate float64 // that there are, or that are done in a second
		Cost
	}{
		{"an empty replica", 1, 1, empty},
		{"sessions", sessions, 0, costs.Session},
		{"programs", float64(c.Programs), 0, costs.Program},
		{"handles", sessions * float64(c.Handles), 0, costs.Handle},
		{"nodes", nodes, 0, costs.Node},
		{"contents", nodes * float64(c.Bytes), 0, costs.Byte},
		{"locks held", float64(c.Locks), 0, costs.Lock},
		{"caches", sessions * float64(c.Cached), 0, costs.Copy},
		{"the log", 1, 0, logged},
		{"writes", 0, c.Writes, write},
		{"reads", 0, c.Reads, read},
		{"lock turns", 0, c.Turns, costs.Turn},
		{"KeepAlives", 0, n.KeepAlives, costs.KeepAlive},
		{"events", 0, c.Writes * float64(c.Watchers), costs.Event},
	} {
		p := Part{of.what, Bytes(of.number * of.Memory), Bytes(of.number * (of.Snapshot*snapshots + of.Disk)), of.MasterCores + of.rate*of.Master/1e9}
		n.Parts = append(n.Parts, p)
		n.Memory, n.Disk, n.MasterCores = n.Memory+p.Memory, n.Disk+p.Disk, n.MasterCores+p.Cores
		n.FollowerCores += of.FollowerCores + of.rate*of.Follower/1e9
		n.MasterNetwork += Bytes(of.rate * (of.Clients + of.Replica*followers))
		n.FollowerNetwork += Bytes(of.rate * of.Replica)
	}
	n.Notes = c.notes(costs, n)
	return n
}

// sized returns what a write or a read of other contents takes: as many bytes more, to or from the client, and of a write, which is
// what goes into the log, to each other replica and in the log.
func (c Cell) sized(a Cost, costs Costs) Cost {
	more := float64(c.Bytes) - costs.WriteBytes
	a.Clients = max(0, a.Clients+more)
	if a.Log > 0 {
		a.Replica, a.Log = max(0, a.Replica+more), max(0, a.Log+more)
	}
	return a
}

// notes says what the numbers do not.
func (c Cell) notes(costs Costs, n Need) []string {
	notes, quota, changes := []string{}, api.DefaultQuota(), c.Writes+2*c.Turns
	note := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	const quotas = "raise its quota, or have several (chubbyctl quota set)"
	note(c.Sessions > quota.Sessions, "a principal may have %d sessions: %s", quota.Sessions, quotas)
	note(n.Connections > maxConnectionsPerAddress, "a replica takes %d connections from one address, those of %d programs: if more are behind one NAT, proxy or node, raise max-connections-per-address", maxConnectionsPerAddress, maxConnectionsPerAddress/connectionsOfProgram)
	note(n.Connections > maxConnections, "%d programs have %d connections, and a replica takes %d: raise max-connections",
		c.Programs, n.Connections, maxConnections)
	note(n.Connections+ownFiles > limitNOFILE, "with %d connections a replica has up to %d files open, and its unit allows %d: raise LimitNOFILE", n.Connections, n.Connections+ownFiles, limitNOFILE)
	note(c.Nodes > quota.Nodes || float64(c.Nodes)*float64(c.Bytes) > float64(quota.Bytes), "a principal may have %d nodes, and %d MiB of contents: %s", quota.Nodes, quota.Bytes>>20, quotas)
	note(c.Handles > api.MaxHandles, "a session may have %d handles open", api.MaxHandles)
	note(n.Lease > usualLease, "sessions are given leases of up to %.0f s, so that there are no more than %.0f KeepAlives a second (keepalives)", n.Lease, keepAlives)
	note(changes > costs.MostWrites, "%.0f changes a second are more than the %.0f that the measured machine did, with all replicas and clients on it: measure yours (chubbyctl bench)", changes, costs.MostWrites)
	note(c.Watchers > 0 && c.Cached > 0, "writes wait until the caches that have what they change have dropped it; clients that read little should not cache")
	note(c.Replicas%2 == 0, "%d replicas survive the loss of no more than %d do", c.Replicas, c.Replicas-1)
	return notes
}
