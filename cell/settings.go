package cell

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
)

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

func (s BackupSchedule) check() string {
	switch {
	case s.Place == nil:
		return ""
	case s.Every < MinBackupEvery || s.Every > MaxBackupEvery:
		return fmt.Sprintf("backup-every: %v; want %v to %v", s.Every, MinBackupEvery, MaxBackupEvery)
	case s.Keep < 1 || s.Keep > MaxBackupKeep:
		return fmt.Sprintf("backup-keep: %d; want 1 to %d", s.Keep, MaxBackupKeep)
	}
	return ""
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
