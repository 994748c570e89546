package cell

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/prometheus/common/expfmt"
)

// firstOperators returns the operators if this epoch begins the cell. It applies all of the log first to know
// that.
func (r *Replica) firstOperators() ([]string, error) {
	if len(r.cfg.Operators) == 0 || r.fsm.State().Cell != "" || r.cfg.supports < raftfsm.OperatorsLevel {
		return nil, nil
	}
	if err := r.raft.Barrier(2 * r.cfg.ElectionTimeout).Error(); err != nil {
		return nil, fmt.Errorf("apply the log: %w", err)
	}
	if r.fsm.State().Cell != "" {
		return nil, nil
	}
	return r.cfg.Operators, nil
}

// warnOfOperators warns of a cell where clients have names and no list names operators: it began before level
// 3, or insecure.
func (r *Replica) warnOfOperators() {
	state := r.fsm.State()
	if r.clientCerts == nil || state.HasOperators() {
		return
	}
	advice := fmt.Sprintf("make the list: chubbyctl acl file put /ls/%s/acl/operators PRINCIPAL; see docs/operations.md, \"After an upgrade from v0.1.0\"", r.cfg.Cell)
	if state.Level < raftfsm.OperatorsLevel {
		advice = "finish the upgrade of the cell (chubbyctl cell upgrade status); then " + advice
	}
	if len(r.cfg.Operators) > 0 {
		advice += fmt.Sprintf(". The key operators of the configuration (%s) is for a cell that begins, and is not used", strings.Join(r.cfg.Operators, ", "))
	}
	r.log.Warn("this cell has no list of operators: all clients may do what is for operators, and say who may do what, unless the ACL of the root forbids it",
		"event", "operators_missing", "advice", advice)
}

// Defaults and limits of the audit log.
const (
	DefaultAuditMiB   = 100
	DefaultAuditFiles = 10
	MaxAuditMiB       = 10_000
	MaxAuditFiles     = 1000
)

func (r *Replica) openAudit() error {
	a := r.cfg.Audit
	if a.File == "" {
		return nil
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

// debugParts returns the parts of a replica's fault report. Parts that are in Config.Debug come from there.
func debugParts() []string { return []string{"metrics", "goroutines", "log", "config"} }

func (s served) Debug(principal, part string) ([]byte, error) {
	if err := s.r.fsm.State().PermitOperator(principal); err != nil {
		return nil, err
	}
	if !slices.Contains(debugParts(), part) {
		return nil, api.Errorf(api.InvalidArgument, "%.40q is none of %s", part, strings.Join(debugParts(), ", "))
	}
	var text bytes.Buffer
	switch part {
	case "metrics":
		families, err := s.r.metrics.registry.Gather()
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				return nil, api.Errorf(api.Unavailable, "the metrics could not be written: %v", err)
			}
		}
		if err != nil {
			return nil, api.Errorf(api.Unavailable, "the metrics could not be gathered: %v", err)
		}
	case "goroutines":
		if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil { // groups goroutines with the same stack
			return nil, api.Errorf(api.Unavailable, "the goroutines could not be written: %v", err)
		}
	default:
		if own := s.r.cfg.Debug[part]; own != nil {
			return own(), nil
		}
	}
	return text.Bytes(), nil
}
