package cell

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
)

// Defaults and limits of the audit log.
const (
	DefaultAuditMiB   = 100
	DefaultAuditFiles = 10
	MaxAuditMiB       = 10_000
	MaxAuditFiles     = 1000
)

func (cfg Config) checkAudit(fault func(string, ...any)) {
	if a := cfg.Audit; a.MiB < 0 || a.MiB > MaxAuditMiB || a.Files < 0 || a.Files > MaxAuditFiles {
		fault("audit-file-mib, audit-files: %d and %d; want up to %d and %d", a.MiB, a.Files, MaxAuditMiB, MaxAuditFiles)
	}
}

func (r *Replica) openAudit() error {
	a := r.cfg.Audit
	if a.File == "" {
		return nil
	}
	if a.MiB == 0 {
		a.MiB = DefaultAuditMiB
	}
	var err error
	r.audit, err = audit.Open(audit.Config{
		Cell: r.cfg.Cell, Replica: r.cfg.ID, File: a.File, Size: int64(a.MiB) << 20, Files: a.Files,
		Wall: r.cfg.Wall, Clock: r.clock, Logger: r.log, Failed: func() { r.auditErrors.Add(1) },
	})
	if err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "start", Message: err.Error() + "; audit-file names it", Err: err}
	}
	return nil
}

// recordRestoredAccess records that this replica restored access to the ACLs, by an operator of the machine and
// no call.
func (r *Replica) recordRestoredAccess(err error) {
	record := audit.Record{Call: "RestoreAccess", On: "/ls/" + r.cfg.Cell, Reason: "it was started with --restore-access", Code: api.CodeOf(err).String()}
	switch api.CodeOf(err) {
	case api.OK:
	case api.Uncertain:
		record.Message = audit.NotKnown + err.Error()
	default:
		return // nothing was done
	}
	r.audit.Act(record)
}
