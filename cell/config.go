package cell

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/session"
)

// Config is everything a replica is told. It is not changed after Start.
type Config struct {
	Cell    string   // the cell's name, the second component of every path
	ID      string   // this replica's; no other of the cell ever has it: "r1"
	Members []Member // every replica of the cell when it begins, this one among them; once they were changed the cell knows better
	Data    string   // the directory that belongs to this replica alone; created if absent

	// Bootstrap lets the replica begin the cell if its data directory holds nothing.
	// Every member has to be started with it, and with the same members. It means
	// nothing once the directory holds data; where another member knows the cell
	// already, Start fails with ErrRefused.
	Bootstrap bool

	// Join has the replica wait, if its data directory holds nothing, until an operator adds it to the cell (chubbyctl cell add, cell
	// replace). Members are then whom to ask whether that was done, and this one. It means nothing once the directory holds data.
	Join bool

	// Spare is like Join, for a replica that is added to stand by (chubbyctl cell add --spare). It takes the place of a replica that
	// has not answered the master for ReplaceAfter, of the master's Config: default DefaultReplaceAfter, at least MinReplaceAfter.
	Spare        bool
	ReplaceAfter time.Duration

	// RestoreAccess has this replica, if it becomes the master within a minute of its
	// start, give everybody the right to write the access control lists again: the
	// way back when they admit nobody. It is to be set for one start only.
	RestoreAccess bool

	// Operators are the principals that may do what concerns the whole cell (end sessions of others, break locks, restore
	// a backup), and change its access control lists, when the cell begins: at most MaxOperators, or "*" for everybody. After that
	// the list /ls/CELL/acl/operators says who is one. Without any, it is who may change the ACL of the root: everybody,
	// until that is changed.
	Operators []string

	LogStore LogStore // where the Raft log is kept; default DefaultLogStore

	// How long a replica that hears nothing from the master waits before it
	// stands for election: between this and twice this. The master steps down
	// when it has heard nothing from a quorum for as long. Default
	// DefaultElectionTimeout, from MinElectionTimeout to MaxElectionTimeout.
	ElectionTimeout time.Duration
	beliefs         time.Duration // instead of ElectionTimeout, past its bounds: a test's master that was stopped

	// DiskStall is how long one operation on the log or the votes may take. Then the replica falls silent and ends, so that
	// others, whose disks are well, can go on. Default DefaultDiskStall, from MinDiskStall to MaxDiskStall.
	DiskStall time.Duration

	proposeTo func(master.Log) master.Log // a test's, which refuses entries, before Raft
	supports  int                         // the newest feature level that the replica knows: raftfsm.MaxLevel, but in tests

	// SlowClient is how long a client may hold up a change by not dropping what it
	// has cached, before the master stops extending its session, whatever it
	// acknowledges (it ends with the lease it has). It is at least a second; 0, the
	// default, sets no such bound. A client that was told and does not acknowledge is
	// not extended anyway, and no setting takes back a lease that was promised; so
	// this only matters for clients that are told late, or acknowledge just in time,
	// and without it a change waits for two of their leases at most.
	SlowClient time.Duration

	// KeepAlives is how many KeepAlives a second this replica wants at most as
	// master: leases are lengthened, up to api.MaxLease, when there are so many
	// sessions that more would come (session.Lengthen). Those are counted that extend
	// a lease: a session with a connection of its own sends another before each, to
	// show that it is there. Default DefaultKeepAlives.
	KeepAlives float64

	// How many connections clients may have to this replica, and how many of those from
	// one IP address (of IPv6, one network of 64 bits); others are refused. A process
	// needs one for all of its sessions, and one for its calls. Defaults DefaultMaxConnections and
	// DefaultMaxConnectionsPerAddress.
	MaxConnections, MaxConnectionsPerAddress int

	// How many calls a second this replica serves one principal, if it knows clients by certificates or tokens, and how many sessions
	// that may open; how many calls it serves one IP address, and how many connections it accepts a second from one, each of
	// which begins with a handshake. What is beyond is refused with Unavailable, except what keeps sessions alive, finds the master or
	// gives something back. 0, the default, sets no such bound; chubbyd has DefaultMaxCallsPerPrincipal and its neighbours.
	MaxCallsPerPrincipal, MaxNewSessionsPerPrincipal int
	MaxCallsPerAddress, MaxHandshakesPerAddress      int

	// ClientMemoryMiB is how much memory this replica holds for the calls of clients, in MiB: of one address a
	// quarter of it, of one connection a sixteenth. Default DefaultClientMemoryMiB.
	ClientMemoryMiB int

	// MaxContentsMiB is how much this replica, as the master, lets the cell hold, in MiB, by namespace.Counts.Weight: contents, names,
	// and 1 KiB for each node. What makes that more is refused with QuotaExceeded; operators may have a sixteenth more. 0, the
	// default, sets no such bound; chubbyd derives one from the memory of the process.
	MaxContentsMiB int

	// ClientTLS and PeerTLS name the certificates of the client port and of the Raft port. Of each, Cert, Key
	// and CA are needed, and those of the two ports are to be signed by different authorities. The certificate of
	// the Raft port is that of this replica: its URI is chubby://CELL/replica/ID. If both are zero, nothing
	// is encrypted, everybody is taken for a client, and every hello is believed.
	ClientTLS, PeerTLS TLSFiles

	// Tokens says which bearer tokens name clients that show no certificate; zero: none. They need TLS. Clients' certificates need
	// not count then: ClientTLS.CA may be left out.
	Tokens TokenConfig

	// Audit says where the audit log is: who did what is for operators, who changed who may do what, who was refused. Zero: none is kept.
	Audit AuditConfig

	// Publish, if set, is called by the master with the replicas that clients are to find by the cell's name: when it has become
	// the master, when they change, and every five minutes. It is not called twice at the same time, and its context ends
	// after 30 seconds. If it fails, it is called again, after 5 seconds at first.
	Publish func(context.Context, Publication) error

	// Debug has further parts of what operators are told for a report of a fault, by name: log, its last lines, and config, without
	// secrets.
	Debug map[string]func() []byte

	Backups BackupSchedule // which the master takes by itself

	Tracing TraceConfig // of the calls of clients; zero: none is traced

	// MetricPrefixes are paths of this cell, at most MaxMetricPrefixes, below each of which the metrics of locks (how long they are
	// waited for and held) are counted apart. The longest that a lock is below of counts.
	MetricPrefixes []string

	// Console has the http port serve a console for browsers, in which people see what the cell's rights allow them to see. With
	// ClientTLS it is served over TLS only, by the certificates of the client port; without, the http port has to listen on the
	// loopback interface.
	Console bool

	InsecurePrincipals bool // take a client's word for who it is (chubbyctl --as); for development

	// Listen says where this replica listens, each of the three that is set: with a
	// host of this machine, or without one on every interface. The others reach it
	// at the addresses of its Member all the same, by NAT for example. By default it
	// listens on these, and where they have a name on every interface.
	Listen Addresses

	// Advertise is the host:port at which clients reach this replica, if it is
	// another than that of its Member; it is told to clients and to the others.
	Advertise string

	// Listeners, if set, are used instead of Listen. Tests use them.
	ClientListener, RaftListener, HTTPListener net.Listener

	// Dial connects to another replica's Raft address; default TCP.
	Dial func(address string, timeout time.Duration) (net.Conn, error)

	// Wall tells the seconds since 1970, for people to read in "since" columns;
	// default the system's. Nothing is ever decided by it.
	Wall func() int64

	Clock  session.Clock // default: one that counts on in suspend
	Logger *slog.Logger  // default: none
}

// Member is one replica as the others know it.
type Member struct {
	ID     string // "r1"
	Client string // host:port where clients reach it
	Raft   string // host:port where the other replicas reach it
	HTTP   string // host:port of health and metrics; may be empty
}

// LogStore names an implementation of the Raft log.
type LogStore string

// The log stores, and the one that is used unless another is asked for; why it
// is that one is docs/adr/0003-log-store.md.
const (
	BoltStore LogStore = "boltdb" // one B+ tree file, two syncs a write
	WALStore  LogStore = "wal"    // segments, one sync a write

	DefaultLogStore = WALStore
)

// LogStores returns the names of all log stores.
func LogStores() []LogStore {
	var names []LogStore
	for _, name := range disk.LogStores() {
		names = append(names, LogStore(name))
	}
	return names
}

// DefaultElectionTimeout replaces a master that has fallen silent within a second: three of the
// four other replicas of five must have missed it, which takes 2.2 times as long
// on average, as Raft looks at the clock (e2e TestMasterKilled). It is twice the
// longest wait of a machine of two cores under full load (make steady).
const DefaultElectionTimeout = 300 * time.Millisecond

// Bounds of Config.ElectionTimeout. The upper one is below the shortest lease: a
// master that is cut off has stepped down before it could find that a session has
// ended which the next master finds alive.
const (
	MinElectionTimeout = 50 * time.Millisecond
	MaxElectionTimeout = api.MinLease * 9 / 10
)

// DefaultKeepAlives is that of 14,000 sessions with leases of 12 s, which cost a
// master a fifth of a core (docs/performance.md).
const DefaultKeepAlives = 2000

// Bounds of Config.ReplaceAfter. A machine that is started again, or serviced, is back before the default is over (Chubby §2.2: "a few
// hours"); the lower bound is that of a reboot.
const (
	DefaultReplaceAfter = 4 * time.Hour
	MinReplaceAfter     = 10 * time.Second
)

// MaxOperators is how many operators a cell may begin with.
const MaxOperators = 100

// self returns this replica's member.
func (cfg Config) self() (Member, bool) {
	for _, m := range cfg.Members {
		if m.ID == cfg.ID {
			return m, true
		}
	}
	return Member{}, false
}
