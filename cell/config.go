package cell

import (
	"context"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"github.com/chubbylock/chubby/session"
)

// Config is the configuration of a replica. It does not change after Start.
type Config struct {
	Cell    string   // the cell's name, the second component of every path
	ID      string   // this replica's; never reused in the cell: "r1"
	Members []Member // all replicas of the cell at bootstrap, this one included; after changes the cell's own list counts
	Data    string   // the directory of this replica alone; created if absent

	// Bootstrap lets the replica begin the cell if its data directory is empty; otherwise it is ignored. Start
	// every member with it, and with the same members. If another member already knows the cell, Start fails
	// with ErrRefused.
	Bootstrap bool

	// Join makes the replica wait, if its data directory is empty, until an operator adds it to the cell
	// (chubbyctl cell add, cell replace); otherwise it is ignored. Members are then this replica and those that
	// it asks.
	Join bool

	// Spare is like Join, for a standby (chubbyctl cell add --spare). It replaces a replica that has not
	// answered the master for the master's ReplaceAfter: default DefaultReplaceAfter, at least MinReplaceAfter.
	Spare        bool
	ReplaceAfter time.Duration

	// RestoreAccess lets everybody write the access control lists again, as the way back when they admit
	// nobody. It acts only if this replica becomes the master within a minute of its start. Set it for one
	// start only.
	RestoreAccess bool

	// Operators are the first operators of a new cell: at most MaxOperators principals, or "*" for everybody.
	// They may end others' sessions, break locks, restore backups and change access control lists. Later the
	// list /ls/CELL/acl/operators counts. Without it, clients that may change the root's ACL are operators.
	Operators []string

	LogStore LogStore // the implementation of the Raft log; default DefaultLogStore

	// ElectionTimeout: a replica that hears nothing from the master stands for election after once to twice
	// this time; the master steps down after this time without a quorum. Default DefaultElectionTimeout, from
	// MinElectionTimeout to MaxElectionTimeout.
	ElectionTimeout time.Duration
	beliefs         time.Duration // for tests of a stopped master: replaces ElectionTimeout, beyond its limits

	// DiskStall is the maximum time of one operation on the log or the votes. After it the replica falls silent
	// and ends, so that others with healthy disks go on. Default DefaultDiskStall, from MinDiskStall to
	// MaxDiskStall.
	DiskStall time.Duration

	proposeTo func(master.Log) master.Log // for tests: rejects entries before Raft
	supports  int                         // the newest feature level that the replica knows: raftfsm.MaxLevel, except in tests

	// SlowClient is how long a client may delay a change by keeping what it has cached. After that the master
	// extends its session no more, whatever it acknowledges. At least a second; 0, the default, sets no limit.
	// The master extends no client that was notified and does not acknowledge, and a promised lease stays
	// valid. So SlowClient only concerns clients that are notified late or acknowledge just in time. Without it
	// a change waits for at most two leases.
	SlowClient time.Duration

	// KeepAlives is how many KeepAlives a second this replica accepts as master; beyond that it lengthens
	// leases, up to api.MaxLease (session.Lengthen). Only those count that extend a lease; a session with its
	// own connection sends another before each, as a sign of life. Default DefaultKeepAlives.
	KeepAlives float64

	// MaxConnections and MaxConnectionsPerAddress limit clients' connections, in all and from one IP address
	// (for IPv6, a network of 64 bits). The replica refuses others. A process needs one for its sessions and
	// one for its calls. Defaults DefaultMaxConnections and DefaultMaxConnectionsPerAddress.
	MaxConnections, MaxConnectionsPerAddress int

	// MaxCallsPerPrincipal and MaxNewSessionsPerPrincipal limit one principal's calls and new sessions a
	// second, if certificates or tokens name clients. MaxCallsPerAddress and MaxHandshakesPerAddress limit one
	// IP address's calls and new connections a second. The replica rejects more with Unavailable, except calls
	// that keep sessions alive, find the master or give something back. 0, the default, sets no limit; chubbyd
	// has DefaultMaxCallsPerPrincipal and its neighbours.
	MaxCallsPerPrincipal, MaxNewSessionsPerPrincipal int
	MaxCallsPerAddress, MaxHandshakesPerAddress      int

	// ClientMemoryMiB is how much memory this replica holds for clients' calls, in MiB: a quarter of it for one
	// address, a sixteenth for one connection. Default DefaultClientMemoryMiB.
	ClientMemoryMiB int

	// MaxContentsMiB is how much the cell may hold under this master, in MiB, by namespace.Counts.Weight:
	// contents, names, and 1 KiB for each node. The master rejects more with QuotaExceeded; operators may use a
	// sixteenth more. 0, the default, sets no limit; chubbyd derives one from the process's memory.
	MaxContentsMiB int

	// ClientTLS and PeerTLS name the certificates of the client port and the Raft port. Each needs Cert, Key
	// and CA; the two ports need different authorities. The Raft port's certificate has this replica's URI,
	// chubby://CELL/replica/ID. If both are zero, nothing is encrypted, everybody counts as a client, and every
	// hello is believed.
	ClientTLS, PeerTLS TLSFiles

	// Tokens configures bearer tokens for clients without certificates; zero: none. They need TLS. Clients then
	// need no certificates, nor ClientTLS a CA.
	Tokens TokenConfig

	// Audit configures the audit log: acts of operators, changes of rights, and refusals. Zero: no log is kept.
	Audit AuditConfig

	// Publish, if set, publishes the replicas that clients find by the cell's name. The master calls it at its
	// beginning, after changes, and every five minutes. Calls do not overlap; the context ends after 30
	// seconds. The master retries a failure, at first after 5 seconds.
	Publish func(context.Context, Publication) error

	// Debug has more parts of a fault report for operators, by name: log, its last lines, and config, without
	// secrets.
	Debug map[string]func() []byte

	Backups BackupSchedule // taken by the master itself

	Tracing TraceConfig // of clients' calls; zero: none

	// MetricPrefixes are at most MaxMetricPrefixes paths of this cell, below each of which metrics of locks
	// (time waited and held) count apart. The longest match counts.
	MetricPrefixes []string

	// Console enables a console for browsers on the http port, subject to the cell's rights. With ClientTLS it
	// needs TLS, with the client port's certificates. Otherwise the http port has to listen on the loopback
	// interface.
	Console bool

	InsecurePrincipals bool // believe a client's claim of its principal (chubbyctl --as); for development

	// Listen sets where this replica listens, for each address that is set: a host of this machine, or every
	// interface without a host. The others still use its Member's addresses, by NAT for example. By default it
	// listens on these, or on every interface if they have a name.
	Listen Addresses

	// Advertise is the host:port where clients reach this replica, if it differs from its Member's. Clients and
	// the other replicas learn it.
	Advertise string

	// The listeners, if set, replace Listen. Tests use them.
	ClientListener, RaftListener, HTTPListener net.Listener

	// Dial connects to a replica, at its Raft or client address; default TCP.
	Dial func(address string, timeout time.Duration) (net.Conn, error)

	// Wall returns the seconds since 1970, for people, in "since" columns; default the system's. It decides
	// nothing.
	Wall func() int64

	Clock  session.Clock // default: one that runs during suspend
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

// The log stores and the default; docs/adr/0003-log-store.md has the reasons.
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

// DefaultElectionTimeout replaces a silent master within a second: three of the four other replicas of five
// must miss it, which takes 2.2 times as long on average, since Raft polls the clock (e2e TestMasterKilled). It
// is twice the longest wait on two cores under full load (make steady).
const DefaultElectionTimeout = 300 * time.Millisecond

// Limits of Config.ElectionTimeout. The maximum is below the shortest lease: an isolated master steps down
// before it could end a session that the next master finds alive.
const (
	MinElectionTimeout = 50 * time.Millisecond
	MaxElectionTimeout = api.MinLease * 9 / 10
)

// DefaultKeepAlives fits 14,000 sessions with leases of 12 s, which cost a master a fifth of a core
// (docs/performance.md).
const DefaultKeepAlives = 2000

// Limits of Config.ReplaceAfter. A machine that reboots or is serviced is back within the default (Chubby §2.2:
// "a few hours"). The minimum is the time of a reboot.
const (
	DefaultReplaceAfter = 4 * time.Hour
	MinReplaceAfter     = 10 * time.Second
)

// MaxOperators is the maximum of operators at bootstrap.
const MaxOperators = 100

// Defaults of Config.MaxConnections and Config.MaxConnectionsPerAddress. A connection takes some 50 KB and a
// file descriptor. A process needs one for sessions and one for calls.
const (
	DefaultMaxConnections           = 40_000
	DefaultMaxConnectionsPerAddress = 4_000
)

// Rates of Config as chubbyd sets them. Calls: more than two cores serve, so that they limit only larger
// machines. Sessions and handshakes: a tenth of what two cores do, enough for a fleet that starts at once.
const (
	DefaultMaxCallsPerPrincipal       = 50_000
	DefaultMaxNewSessionsPerPrincipal = 1_000
	DefaultMaxCallsPerAddress         = 100_000
	DefaultMaxHandshakesPerAddress    = 500
)

// DefaultClientMemoryMiB has room for 130,000 parked calls, or 4,000 whole files in transit.
const DefaultClientMemoryMiB = 1 << 10

// MinClientMemoryMiB leaves a connection room for a few whole files.
const MinClientMemoryMiB = 64

// Limits of Config.DiskStall. A slow disk, which syncs in tens of milliseconds, is far from the default. The
// other replicas elect a leader within as long again.
const (
	DefaultDiskStall = 3 * time.Second
	MinDiskStall     = time.Second
	MaxDiskStall     = 10 * time.Minute
)

func (cfg Config) self() (Member, bool) {
	for _, m := range cfg.Members {
		if m.ID == cfg.ID {
			return m, true
		}
	}
	return Member{}, false
}

// BackupSchedule says where and how often the master takes backups, and how many it keeps. Their names are
// CELL-20060102T150405Z-ID.backup: the time in UTC of their beginning, and the first digits of the id of the
// cell's tokens. The master touches no other files there. So a newly bootstrapped cell keeps the backups of a
// lost cell of the same name.
type BackupSchedule struct {
	Place BackupPlace   // nil: no backups
	Every time.Duration // at least MinBackupEvery
	Keep  int           // how many of this cell's are kept; at least 1
}

// BackupPlace is where backups are kept. One goroutine of the master calls its methods, which end with their
// contexts.
type BackupPlace interface {
	// List returns the names of all files.
	List(ctx context.Context) ([]string, error)
	// Create creates a file with what write writes, which appears when complete. It replaces nothing: then the
	// error is fs.ErrExist. An incomplete file may be named with a dot, the final name, a dot, and digits; it
	// stays after a crash.
	Create(ctx context.Context, name string, write func(io.Writer) error) error
	// Remove removes a file.
	Remove(ctx context.Context, name string) error
	// String names the place in the log.
	String() string
}

// Publication is what clients find by the cell's name, for example in DNS.
type Publication struct {
	Cell     string
	Replicas []Member // the voters, sorted by ID, except those with an unknown client address
	Left     []string // the IDs of former replicas, which never return
}

func (p Publication) equal(q Publication) bool {
	return slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.Left, q.Left)
}

// AuditConfig configures a replica's audit log. docs/operations.md has the format.
type AuditConfig struct {
	File  string // its name, or AuditStdout; "": no log is kept. Refusals go to a file beside it, audit-refused.log for audit.log
	MiB   int    // maximum size, then each is renamed FILE.1, and that FILE.2; default DefaultAuditMiB
	Files int    // renamed files kept of each; 0: others rename the files
}

// AuditStdout is the File of an audit log on standard output.
const AuditStdout = audit.Stdout

// TLSFiles are the PEM files of one port and its callers. The replica reads changed files again within seconds.
type TLSFiles = certs.Files

// Addresses are a replica's three ports: for clients, for other replicas, and for health and metrics. Each is
// host:port or empty.
type Addresses struct{ Client, Raft, HTTP string }

// Limits of scheduled backups.
const (
	MinBackupEvery  = time.Minute
	MaxBackupEvery  = 30 * 24 * time.Hour
	MaxBackupKeep   = 10_000
	backupLookEvery = 5 * time.Second
	backupAgain     = time.Minute // after the first failure; doubled up to maxBackupAgain
	maxBackupAgain  = 15 * time.Minute
	maxBackupTakes  = time.Hour // one backup
)

// TokenConfig configures the bearer tokens that name clients besides certificates.
type TokenConfig = tokens.Config

// Defaults and limits of the audit log.
const (
	DefaultAuditMiB   = 100
	DefaultAuditFiles = 10
	MaxAuditMiB       = 10_000
	MaxAuditFiles     = 1000
)

// Version returns the version of this build: the module's, or "devel".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
