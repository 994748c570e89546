package wire

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/internal/frames"
)

// audited says what of a call is recorded as an act, besides the refusal that every call may end with.
type audited int

const (
	unknownCall audited = iota
	onlyRefusals
	everyCall  // is for operators, or changes who may do what
	listsAlone // if it is about an access control list
	othersOnly // if it is about another's session
	beginsOnly // the first of many calls that belong together
)

// auditOf has every RPC: what is new has to be thought of. See TestEveryCallIsAudited.
func auditOf(method string) audited {
	switch path.Base(method) {
	case "BreakLock", "SetQuota", "SetACL", "Transfer", "FinishUpgrade", "ChangeMembers":
		return everyCall
	case "Open", "SetContents", "Delete":
		return listsAlone
	case "EndSession":
		return othersOnly
	case "Backup", "Restore":
		return beginsOnly
	case "CreateSession", "KeepAlive", "KeepAlives", "RenewCache", "Close", "GetContentsAndStat", "GetStat", "ReadDir",
		"Acquire", "TryAcquire", "Release", "GetSequencer", "SetSequencer", "CheckSequencer", "Cancel",
		"ListLocks", "ListSessions", "ListQuotas", "Explain", "History", "Locate", "Status", "Members", "Authenticate":
		return onlyRefusals
	}
	return unknownCall
}

// actor returns who calls, if that may not be known any more when the call ends: a master that hands over forgets its sessions.
func (s *service) actor(ctx context.Context, method string, request any) string {
	if s.cfg.Audit == nil || auditOf(method) != everyCall {
		return ""
	}
	m, _ := s.cfg.Replica.Master()
	return s.whoCalls(ctx, m, request)
}

// audit records a call that has ended, if it is one to record. who is what actor said. What an operator tried in vain is recorded if it was refused: else it would
// be for strangers to have as many lines written as they like.
func (s *service) audit(ctx context.Context, who, method string, request any, err error) {
	if s.cfg.Audit == nil || errors.Is(err, frames.ErrParked) {
		return
	}
	scope := auditOf(method)
	if err == nil && scope == onlyRefusals {
		return // nearly all of them
	}
	var e api.Error
	if ended := (*api.Error)(nil); errors.As(pb.Error(err), &ended) {
		e = *ended
	}
	call := callOf(ctx)
	refused := e.Code == api.PermissionDenied || e.Code == api.Unauthenticated || call != nil && call.foreign
	m, _ := s.cfg.Replica.Master()
	node, known := nodeOf(m, request)
	if !refused && (!mayBeDone(e.Code) || !isAct(scope, node, request)) {
		return
	}
	record := audit.Record{Call: path.Base(method), Principal: cmp.Or(who, s.whoCalls(ctx, m, request)), On: subjectOf(request), Code: e.Code.String(), Message: e.Message}
	if known {
		record.On = m.Path(node)
	}
	record.On = cmp.Or(record.On, e.Path)
	if conn := connOf(ctx); conn != nil {
		record.From = conn.RemoteAddr().String()
	}
	switch q := request.(type) {
	case interface{ GetReason() string }:
		record.Reason = q.GetReason()
	case *pb.RestoreRequest:
		record.Reason = q.GetSeal().GetWhy()
	}
	switch {
	case refused:
		s.cfg.Audit.Refused(record)
	case err != nil:
		s.cfg.Audit.Unknown(record)
	default:
		s.cfg.Audit.Act(record)
	}
}

// mayBeDone reports whether what a call asked for may have been done.
func mayBeDone(code api.Code) bool {
	return slices.Contains([]api.Code{api.OK, api.Uncertain, api.Cancelled, api.DeadlineExceeded}, code)
}

// isAct reports whether a call is an act, by its scope.
func isAct(scope audited, node api.Name, request any) bool {
	switch q := request.(type) {
	case *pb.EndSessionRequest:
		return scope == othersOnly && q.GetTarget() != 0
	case *pb.OpenRequest:
		return scope == listsAlone && isList(node) && q.GetCreate() != pb.Create_CREATE_MUST_EXIST
	case *pb.BackupRequest:
		return scope == beginsOnly && q.GetPart() == 1
	case *pb.RestoreRequest:
		return scope == beginsOnly && q.GetPart() == nil
	}
	return scope == everyCall || scope == listsAlone && isList(node)
}

// isList reports whether a node is in the directory of access control lists.
func isList(node api.Name) bool { return strings.HasPrefix(string(node), string(api.ACLDir)+"/") }

// nodeOf returns the name of the node that a request is about, if it is about one, and a master can tell. m may be nil.
func nodeOf(m *master.Master, request any) (name api.Name, known bool) {
	if m == nil {
		return "", false
	}
	named := func(token []byte) (api.Name, bool) {
		h, err := signerOf(m).parseHandle(token)
		return h.Node.Name, err == nil
	}
	switch q := request.(type) {
	case *pb.OpenRequest:
		if len(q.GetDirectory()) > 0 {
			name, known = named(q.GetDirectory())
			return api.Name(string(name) + "/" + q.GetPath()), known
		}
		p, err := api.ParsePath(q.GetPath())
		return p.Name(), err == nil
	case interface{ GetHandle() []byte }:
		return named(q.GetHandle())
	}
	return "", false
}

// subjectOf returns what a request is about that is about no node by a handle.
func subjectOf(request any) string {
	switch q := request.(type) {
	case *pb.EndSessionRequest:
		if q.GetTarget() != 0 {
			return "session " + api.SessionID(q.GetTarget()).String()
		}
	case *pb.SetQuotaRequest:
		return cmp.Or(q.GetPath(), q.GetPrincipal())
	case *pb.TransferRequest:
		return q.GetTo()
	case *pb.ChangeMembersRequest:
		return strings.TrimSpace(q.GetAdd() + " " + q.GetRaft() + " " + q.GetRemove())
	case interface{ GetPath() string }:
		return q.GetPath()
	}
	return ""
}

// whoCalls returns the principal of a call: that of its connection, else that of its session.
func (s *service) whoCalls(ctx context.Context, m *master.Master, request any) string {
	who := principalOf(ctx)
	if q, ok := request.(interface{ GetCaller() *pb.Caller }); who == "" && ok && m != nil {
		who, _ = s.ownerOf(m, q.GetCaller().GetSession())
	}
	if who == nobody {
		return ""
	}
	return who
}
