package misuse

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Kind is a way to use a cell that costs it much and gives the client little. Each has a row in rows, and a section in
// docs/misuse.md.
type Kind uint32

// The numbers of the misuses, which cross the wire.
const (
	Polling       Kind = 1
	LockPolling   Kind = 2
	Reopening     Kind = 3
	BriefHolds    Kind = 4
	Unfenced      Kind = 5
	UnusedCache   Kind = 6
	HandleLeak    Kind = 7
	BriefSessions Kind = 8
	Abandoned     Kind = 9
	ShortLease    Kind = 10
	LargeWrites   Kind = 11
	SameContents  Kind = 12
)

// Limits says from when on something is a misuse: if all of its limits are reached. Those that are zero do not
// count. What is measured is what a master has counted in Window to twice that, or since the session or the
// epoch began, and MinTime at least.
type Limits struct {
	Count     int           // times, or handles
	PerSecond float64       // times a second, over the time measured
	Share     float64       // of all those of which it is a part: see Kind.What
	Under     time.Duration // the lease is shorter
}

// How long masters count.
const (
	Window  = 5 * time.Minute  // what was counted is forgotten between one and two of these later
	MinTime = 30 * time.Second // what was seen for less is not judged: clients that start are busy
)

// What the limits measure.
const (
	BriefHold      = 100 * time.Millisecond // a lock held for less was held briefly
	BriefSession   = 5 * time.Second        // a session closed sooner after its creation was brief
	LargeWrite     = 16 << 10               // bytes; a file written with as many was large
	AbandonedUntil = api.MaxLease           // a session whose lease ran out sooner after its creation was abandoned
)

// kindRow is what holds for one misuse.
type kindRow struct {
	kind    Kind
	name    string
	limits  Limits
	what    string // the client did, as the end of a sentence after its count
	why     string
	instead string
	unseen  string // what a master cannot see, so that the finding may be of little weight
}

// rows has a row for each misuse, in the order in which they are shown to people. Nothing writes to it.
var rows = []kindRow{
	{
		kind: Polling, name: "polling", limits: Limits{Count: 60, PerSecond: 1},
		what:    "reads of a node that had not changed since the last through the same handle",
		why:     "each is a call, and a proof of leadership, that tells the client nothing",
		instead: "cache (leave NoCache unset): reads of what has not changed then make no call; or open the handle for events, and read when one comes",
	},
	{
		kind: LockPolling, name: "lock-polling", limits: Limits{Count: 60, PerSecond: 1},
		what:    "attempts to take a lock without waiting, although nothing had changed since the last",
		why:     "each is an entry of the log, on every disk of the cell, and the lucky client gets the lock, not the one that came first",
		instead: "wait in the queue with Acquire, which may be given up; or open the handle for lock-vacant events, and try when one comes",
	},
	{
		kind: Reopening, name: "reopening", limits: Limits{Count: 60, PerSecond: 1},
		what:    "openings of a file that the session had opened shortly before, and that had not changed since",
		why:     "each opening is a call, and so is each closing",
		instead: "keep the handle, or cache (leave NoCache unset), so that opening again makes no call",
	},
	{
		kind: BriefHolds, name: "brief-holds", limits: Limits{Count: 60, PerSecond: 1, Share: 0.9},
		what:    "turns with exclusive locks that lasted less than 100 ms, of all its turns",
		why:     "each is two entries of the log, on every disk of the cell: locks are made to be held for minutes or days (Chubby §2.1)",
		instead: "hold one lock for all the work, and share it out inside the program; let the client keep the lock between two uses (CacheLock); or use the lock to elect a server of fine-grained locks",
	},
	{
		kind: Unfenced, name: "unfenced", limits: Limits{Count: 20, Share: 0.9},
		what:    "turns with exclusive locks without a lock-delay, whose sequencer and token the program did not read, of all its turns",
		why:     "a holder that was suspended, or whose messages are late, works on after it has lost the lock, and what it sends is not refused",
		instead: "send the sequencer (Lock.Sequencer) or the token with each request to what the lock protects, and check it there; make writes to the cell conditional on it (IfSequencer); or take the lock with a lock-delay, which helps against most of that",
		unseen:  "whether what the lock protects could be harmed: if it is all inside one process, nothing is amiss. Clients of other makes than the Go library do not say, and are not named",
	},
	{
		kind: UnusedCache, name: "unused-cache", limits: Limits{Count: 60, PerSecond: 1, Share: 0.9},
		what:    "copies in the client's cache that a change had it drop, and that it cannot have used, of all that it dropped",
		why:     "each change tells the client to drop its copy, and waits until it is told that it has",
		instead: "open the session with NoCache if it reads what changes more often than it reads; keep what changes often elsewhere, and its address in the cell",
		unseen:  "reads out of a cache. It sees that the client asked for no cache lease since it had the copy, and without one nothing is read out of a cache. One use of any other copy makes the client unsuspicious for 2.5 s",
	},
	{
		kind: HandleLeak, name: "handle-leak", limits: Limits{Count: 256},
		what:    "handles open, more of them all the time, and most of them second ones on the same node, or more than half of what a session may have",
		why:     "the master remembers each, and asks the client about each after a fail-over; at 10,000 the session can open nothing more",
		instead: "close each handle (defer h.Close), or keep one for each file and use it from everywhere: handles may be shared by goroutines",
	},
	{
		kind: BriefSessions, name: "brief-sessions", limits: Limits{Count: 60, PerSecond: 1},
		what:    "sessions of the principal that were closed within 5 s",
		why:     "each is two entries of the log, a handshake and the search for the master; and no cache lives long enough to help",
		instead: "open one session for each process (client.Dial), and keep it; for scripts, one chubbyctl acquire or lock around all of the work",
		unseen:  "whether they were of one program, or of very many that ran once",
	},
	{
		kind: Abandoned, name: "abandoned-sessions", limits: Limits{Count: 30, PerSecond: 0.1},
		what:    "sessions of the principal whose lease ran out within 60 s of their creation",
		why:     "until then they use the principal's quota, their locks stay held, and for a lock-delay nobody gets these",
		instead: "close the session at the end (defer c.Close), also at SIGTERM, and find out why processes end soon",
		unseen:  "whether the processes crashed, or ended in an orderly way without closing",
	},
	{
		kind: ShortLease, name: "short-lease", limits: Limits{Under: 4 * time.Second},
		what:    "asked for a lease",
		why:     "a fail-over, or a pause of the process, that takes longer than what is left of it has the client stop all work under its locks; and short leases need many KeepAlives",
		instead: "take the usual lease of 12 s. What has to be quick after a crash is the end of the session, and processes that end in an orderly way close it",
	},
	{
		kind: LargeWrites, name: "large-writes", limits: Limits{Count: 30, PerSecond: 0.2},
		what:    "writes of 16 KiB or more",
		why:     "each goes to the log and the memory of every replica, and keeps what waits behind it waiting (Chubby §4.3)",
		instead: "keep the data elsewhere, and its address or version in the file",
	},
	{
		kind: SameContents, name: "same-contents", limits: Limits{Count: 30, PerSecond: 0.1},
		what:    "writes of contents that the file had already",
		why:     "each is an entry of the log, has all caches drop the file, and is told to all that watch it",
		instead: "read first, which out of the cache costs nothing, and write what differs; to show that a process is alive, hold an ephemeral file open",
	},
}

// Kinds returns every misuse, in the order in which they are shown to people.
func Kinds() []Kind {
	list := make([]Kind, len(rows))
	for i, row := range rows {
		list[i] = row.kind
	}
	return list
}

// row returns the row of a misuse, which is empty for one that this version does not know.
func (k Kind) row() kindRow {
	for _, row := range rows {
		if row.kind == k {
			return row
		}
	}
	return kindRow{}
}

// Known reports whether this version knows the misuse. A newer master may find others.
func (k Kind) Known() bool { return k.row().kind != 0 }

// String names the misuse in lower case, words joined by dashes.
func (k Kind) String() string {
	if row := k.row(); row.name != "" {
		return row.name
	}
	return fmt.Sprintf("misuse %d", uint32(k))
}

// UnmarshalText reads what String writes.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, row := range rows {
		if row.name == string(text) {
			*k = row.kind
			return nil
		}
	}
	return api.Errorf(api.InvalidArgument, "%q is no misuse that can be found", text)
}

// Limits returns from when on it is one.
func (k Kind) Limits() Limits { return k.row().limits }

// What says what the client does, after how often it did; "" if the misuse is not known.
func (k Kind) What() string { return k.row().what }

// Why says what it costs.
func (k Kind) Why() string { return k.row().why }

// Instead says what to do instead.
func (k Kind) Instead() string { return k.row().instead }

// Unseen says what a master cannot see of it, so that a finding may be of little weight; "" if it sees everything.
func (k Kind) Unseen() string { return k.row().unseen }
