package sizing

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// Cell is what a cell is to hold and to do. Rates are of a second.
type Cell struct {
	Replicas int // at least 1
	Sessions int
	Programs int   // with connections of their own, two each
	Handles  int   // open, of each session
	Cached   int   // names in the cache of each session
	Nodes    int   // files and directories
	Bytes    int64 // of contents of a file, on average
	Locks    int   // that are held
	Writes   float64
	Reads    float64 // that no cache answers
	Turns    float64 // locks acquired and released
	Watchers int     // clients that are told of a write, on average
}

// What a Cell may have of anything, and do in a second. It is far more than any cell has, and so little that bytes of it can be counted.
const (
	maxThings = 1_000_000_000_000
	maxRate   = 1e9
)

// Validate says what is wrong with it, or "".
func (c Cell) Validate() string {
	for _, r := range []float64{c.Writes, c.Reads, c.Turns} {
		if !(r >= 0 && r <= maxRate) {
			return fmt.Sprintf("%v of something a second: want 0 to %.0f", r, maxRate)
		}
	}
	if c.Replicas < 1 || c.Replicas > 99 {
		return fmt.Sprintf("%d replicas: want 1 to 99", c.Replicas)
	}
	if c.Bytes < 0 || c.Bytes > api.MaxContents {
		return fmt.Sprintf("files of %d bytes: want 0 to %d", c.Bytes, api.MaxContents)
	}
	for _, n := range []int{c.Sessions, c.Programs, c.Handles, c.Cached, c.Nodes, c.Locks, c.Watchers} {
		if n < 0 || n > maxThings {
			return fmt.Sprintf("%d of something: want 0 to a million millions", n)
		}
	}
	for what, n := range map[string]float64{
		"handles": float64(c.Sessions) * float64(c.Handles), "names in caches": float64(c.Sessions) * float64(c.Cached), "events a second": c.Writes * float64(c.Watchers),
	} {
		if n > maxThings {
			return fmt.Sprintf("%.0f %s in all: want at most a million millions", n, what)
		}
	}
	return ""
}

// Part is a part of what a replica needs, and what it is for.
type Part struct {
	What   string
	Memory float64 // bytes
	Disk   float64 // bytes
	Cores  float64 // of the master
}

// Need is what each replica of a cell needs: as the master, which every one may become, and as another.
type Need struct {
	Memory          float64 // bytes
	Disk            float64 // bytes; twice that should be free, since a snapshot is written beside those that are kept
	MasterCores     float64
	FollowerCores   float64
	MasterNetwork   float64 // bytes a second, sent and received
	FollowerNetwork float64 // bytes a second
	Connections     int     // of clients
	KeepAlives      float64 // a second
	Lease           float64 // seconds: the longest that sessions are given, so that there are no more KeepAlives
	Parts           []Part  // the same, part by part
	Notes           []string
}

// Need computes it.
func (c Cell) Need(costs Costs) Need {
	n := Need{Lease: usualLease, Connections: c.Programs * connectionsOfProgram}
	followers := float64(c.Replicas - 1)
	n.KeepAlives = float64(c.Sessions) / costs.Interval
	n.Lease = min(usualLease*max(1, n.KeepAlives/keepAlives), api.MaxLease.Seconds())
	n.KeepAlives *= usualLease / n.Lease

	n.hold("an empty replica", 1, Thing{Memory: costs.Base.Memory})
	n.hold("sessions", float64(c.Sessions), costs.Session)
	n.hold("programs", float64(c.Programs), costs.Program)
	n.hold("handles", float64(c.Sessions)*float64(c.Handles), costs.Handle)
	n.hold("nodes", float64(c.Nodes), costs.Node)
	n.hold("contents", float64(c.Nodes)*float64(c.Bytes), costs.Byte)
	n.hold("locks held", float64(c.Locks), costs.Lock)
	n.hold("caches", float64(c.Sessions)*float64(c.Cached), costs.Copy)

	// An entry of the log has the commands that waited when it was made: more of them, the faster they come.
	changes := c.Writes + 2*c.Turns
	commands := max(1, changes/max(1, costs.MostEntries))
	entry := commands * max(sized(costs.Write, costs, c.Bytes).Log, costs.Turn.Log/2)
	n.add(Part{What: "the log", Disk: costs.Base.Disk + max(logEntries, 2*snapshotPeriod*changes/commands)*entry})

	n.MasterCores, n.FollowerCores = costs.Base.Master, costs.Base.Follower
	n.MasterNetwork, n.FollowerNetwork = costs.Base.Replica*followers, costs.Base.Replica
	n.Parts[0].Cores = costs.Base.Master
	n.do("writes", c.Writes, sized(costs.Write, costs, c.Bytes), followers)
	n.do("reads", c.Reads, sized(costs.Read, costs, c.Bytes), followers)
	n.do("lock turns", c.Turns, costs.Turn, followers)
	n.do("KeepAlives", n.KeepAlives, costs.KeepAlive, followers)
	n.do("events", c.Writes*float64(c.Watchers), costs.Event, followers)
	n.Notes = c.notes(costs, n)
	return n
}

// sized returns what a write or a read of other contents takes: as many bytes more, to or from the client, and of a write, which is
// what goes into the log, to each other replica and in the log.
func sized(a Act, costs Costs, bytes int64) Act {
	more := float64(bytes) - costs.WriteBytes
	a.Clients = max(0, a.Clients+more)
	if a.Log > 0 {
		a.Replica, a.Log = max(0, a.Replica+more), max(0, a.Log+more)
	}
	return a
}

func (n *Need) add(p Part) {
	n.Memory += p.Memory
	n.Disk += p.Disk
	n.Parts = append(n.Parts, p)
}

// hold adds so many things.
func (n *Need) hold(what string, number float64, t Thing) {
	n.add(Part{What: what, Memory: number * t.Memory, Disk: number * t.Snapshot * snapshots})
}

// do adds an act, so often a second.
func (n *Need) do(what string, rate float64, a Act, followers float64) {
	const second = 1e9
	cores := rate * a.Master / second
	n.MasterCores += cores
	n.FollowerCores += rate * a.Follower / second
	n.MasterNetwork += rate * (a.Clients + a.Replica*followers)
	n.FollowerNetwork += rate * a.Replica
	for i := range n.Parts {
		if n.Parts[i].What == what {
			n.Parts[i].Cores += cores
			return
		}
	}
	n.Parts = append(n.Parts, Part{What: what, Cores: cores})
}

// notes says what the numbers do not.
func (c Cell) notes(costs Costs, n Need) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	quota := api.DefaultQuota()
	if c.Sessions > quota.Sessions {
		note("a principal may have %d sessions: raise its quota, or have several (chubbyctl quota set)", quota.Sessions)
	}
	c.noteConnections(note)
	if c.Nodes > quota.Nodes || float64(c.Nodes)*float64(c.Bytes) > float64(quota.Bytes) {
		note("a principal may have %d nodes, and %d MiB of contents: raise its quota, or have several (chubbyctl quota set)", quota.Nodes, quota.Bytes>>20)
	}
	if c.Handles > api.MaxHandles {
		note("a session may have %d handles open", api.MaxHandles)
	}
	if n.Lease > usualLease {
		note("sessions are given leases of up to %.0f s, so that there are no more than %.0f KeepAlives a second (keepalives)", n.Lease, keepAlives)
	}
	if changes := c.Writes + 2*c.Turns; changes > costs.MostWrites {
		note("%.0f changes a second are more than the %.0f that the measured machine did, with all replicas and clients on it: measure yours (chubbyctl bench)", changes, costs.MostWrites)
	}
	if c.Watchers > 0 && c.Cached > 0 {
		note("writes wait until the caches that have what they change have dropped it; clients that read little should not cache")
	}
	if c.Replicas%2 == 0 {
		note("%d replicas survive the loss of no more than %d do", c.Replicas, c.Replicas-1)
	}
	return notes
}

// noteConnections says which limits of a replica's connections have to be raised for so many programs.
func (c Cell) noteConnections(note func(format string, args ...any)) {
	connections := c.Programs * connectionsOfProgram
	if c.Programs > maxConnectionsPerAddress/connectionsOfProgram {
		note("a replica takes %d connections from one address, those of %d programs: if more are behind one NAT, proxy or node, raise max-connections-per-address", maxConnectionsPerAddress, maxConnectionsPerAddress/connectionsOfProgram)
	}
	if connections > maxConnections {
		note("%d programs have %d connections, and a replica takes %d: raise max-connections", c.Programs, connections, maxConnections)
	}
	if files := connections + ownFiles; files > limitNOFILE {
		note("with %d connections a replica has up to %d files open, and its unit allows %d: raise LimitNOFILE", connections, files, limitNOFILE)
	}
}
