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

// BackupSchedule says where the master puts a backup from time to time, and how many of them are kept. Their names are
// CELL-20060102T150405Z-ID.backup, by the time in UTC when they were begun and the first digits of the id of the cell's tokens; nothing
// else that is there is touched. So a cell that was just bootstrapped removes nothing of the lost one, of the same name, that it is to be
// restored from.
type BackupSchedule struct {
	Place BackupPlace   // nil: no backups are taken
	Every time.Duration // at least MinBackupEvery
	Keep  int           // how many of this cell's stay; at least 1
}

// BackupPlace is where backups are kept. Its methods are called by one goroutine of the master, and end with their contexts.
type BackupPlace interface {
	// List returns the names of what is there.
	List(ctx context.Context) ([]string, error)
	// Create makes a file of what write writes, which appears when it is whole; nothing is replaced: then the error is fs.ErrExist. Until
	// it is whole, there may be one whose name is a dot, that of the file, a dot, and digits; after a crash it stays.
	Create(ctx context.Context, name string, write func(io.Writer) error) error
	// Remove removes a file.
	Remove(ctx context.Context, name string) error
	// String names the place, in the log.
	String() string
}

// check returns what is wrong with a schedule, "" if nothing is.
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

// Publication is what clients are to find by the name of a cell, outside the cell: in DNS, for example.
type Publication struct {
	Cell     string
	Replicas []Member // those that have a vote, by their ID; those whose client address is not known yet are left out
	Left     []string // the IDs of those that are not replicas any more, and never will be
}

func (p Publication) equal(q Publication) bool {
	return slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.Left, q.Left)
}

// AuditConfig says where a replica's audit log is kept. The format is in docs/operations.md.
type AuditConfig struct {
	File  string // its name, or AuditStdout; "": none is kept. Refusals have a file beside it, audit-refused.log for audit.log
	MiB   int    // after which each is renamed FILE.1, and that FILE.2; default DefaultAuditMiB
	Files int    // of each that were renamed, and are kept; 0: it is left to others to rename them
}

// AuditStdout is the File of an audit log that goes to standard output.
const AuditStdout = audit.Stdout

// TLSFiles are the files, in PEM, by which one port of a replica and its callers know each other.
// They are read again when they have changed, within seconds.
type TLSFiles = certs.Files

// Addresses are those of the three ports of a replica: for clients, for the other
// replicas, and for health and metrics. Each is host:port, or empty.
type Addresses struct{ Client, Raft, HTTP string }

// Bounds of backups that are taken by themselves.
const (
	MinBackupEvery  = time.Minute
	MaxBackupEvery  = 30 * 24 * time.Hour
	MaxBackupKeep   = 10_000
	backupLookEvery = 5 * time.Second
	backupAgain     = time.Minute // after the first failure; doubled up to maxBackupAgain
	maxBackupAgain  = 15 * time.Minute
	maxBackupTakes  = time.Hour // one backup
)

// TokenConfig says which bearer tokens name clients, besides certificates.
type TokenConfig = tokens.Config
