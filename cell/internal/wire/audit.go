package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// witness is what is known of a call before it is served. Afterwards the master may have handed over, or the
// session ended.
type witness struct {
	master    *master.Master // nil if there was none
	rights    rights         // of everybody, at that time
	principal string
	audited   audited
	own       bool // about the caller's own session, which needs no right
}

func (s *service) witness(ctx context.Context, audited audited, request any) (w witness) {
	if w.audited = audited; s.cfg.Audit != nil && audited != onlyRefusals {
		w.master, _ = s.cfg.Replica.Master()
		w.principal = s.whoCalls(ctx, w.master, request)
	}
	if w.master != nil {
		w.rights = rights{w.master.State()}
	}
	if q, ok := request.(*pb.EndSessionRequest); ok && w.master != nil && !w.rights.isOperator(w.principal) {
		owner, err := w.master.Sessions.Principal(api.SessionID(q.GetTarget()))
		w.own = err == nil && owner == w.principal
	}
	return w
}

// audit records a call that has ended. It records a failed call only if a right was missing; else strangers
// could have any number of lines written.
func (s *service) audit(ctx context.Context, before witness, method string, request, reply any, err error) {
	if s.cfg.Audit == nil || errors.Is(err, frames.ErrParked) {
		return
	}
	if err == nil && (before.audited == onlyRefusals || isVain(reply)) {
		return // nearly all calls
	}
	var e api.Error
	if known := (*api.Error)(nil); errors.As(pb.Error(err), &known) {
		e = *known
	}
	c := callOf(ctx)
	refused := e.Code == api.PermissionDenied || e.Code == api.Unauthenticated || c != nil && c.foreign
	m := before.master
	if m == nil {
		m, _ = s.cfg.Replica.Master()
	}
	node, known := s.nodeOf(m, request)
	if !refused && (!mayBeDone(e.Code) || before.own || !isAct(before.audited, node, request)) {
		return
	}
	record := audit.Record{Call: path.Base(method), Principal: cmp.Or(before.principal, s.whoCalls(ctx, m, request)), Code: e.Code.String(), Message: e.Message}
	switch _, several := request.(*pb.TxnRequest); {
	case known:
		record.On = m.Path(node)
	case several: // the rejected step, else the first
		//mutant: record.On = e.Path //by TestAuditOfStrangers of ./cell
		record.On = cmp.Or(e.Path, subjectOf(request))
		if p, err := api.ParsePath(record.On); err == nil && m != nil {
			record.On = m.Path(p.Name())
		}
	default:
		record.On = cmp.Or(subjectOf(request), e.Path)
	}
	if conn := connOf(ctx); conn != nil {
		record.From, record.By = conn.from()
	}
	switch q := request.(type) {
	case interface{ GetReason() string }:
		record.Reason = q.GetReason()
	case *pb.RestoreRequest:
		record.Reason = q.GetSeal().GetWhy()
	}
	if refused {
		s.cfg.Audit.Refused(record)
		return
	}
	if err != nil {
		record.Code, record.Message = api.Uncertain.String(), audit.NotKnown+record.Message
	}
	may := before.rights
	if m != nil {
		may = append(may, m.State())
	}
	var acts []audit.Record
	for _, one := range s.mayBeActs(m, record, node, request) {
		switch {
		case s.mayDo(m, may, record.Principal, one.node, request), err == nil && !isNumbered(request):
			acts = append(acts, one.Record)
			continue
		case err == nil:
			one.Code, one.Message = api.Uncertain.String(), audit.NotKnown+"its caller has no right to it, and was answered as if it had been done before"
		}
		s.cfg.Audit.Unknown(one.Record)
	}
	s.cfg.Audit.Act(acts...)
}

// mayBeAct is the record of a possible act, and the node that it concerns, if any.
type mayBeAct struct {
	audit.Record
	node api.Name
}

// mayBeActs returns the records of a call: for a transaction, one for each access control list that it changes,
// so that no long line is cut. There are at most api.MaxTxnSteps.
func (s *service) mayBeActs(m *master.Master, record audit.Record, node api.Name, request any) (acts []mayBeAct) {
	q, several := request.(*pb.TxnRequest)
	if !several {
		return []mayBeAct{{record, node}}
	}
	//mutant: for _, list := range listsOf(q)[:1] { //by TestTxnIsAudited of ./cell
	for _, list := range listsOf(q) {
		record.On = list.String()
		if m != nil {
			record.On = m.Path(list.Name())
		}
		acts = append(acts, mayBeAct{record, list.Name()})
	}
	return acts
}

// isNumbered reports whether a request is one of a session's numbered ones. It may be answered as done, without
// any right, if another with its number and hash was done.
func isNumbered(request any) bool {
	q, ok := request.(interface{ GetMutation() *pb.Mutation })
	return ok && q.GetMutation() != nil
}

func listsOf(q *pb.TxnRequest) (lists []api.Path) {
	for _, o := range q.GetOperations()[:min(len(q.GetOperations()), api.MaxTxnSteps)] {
		if p, err := api.ParsePath(o.GetPath()); err == nil && isList(p.Name()) {
			lists = append(lists, p)
		}
	}
	return lists
}

// isVain reports whether a call succeeded but changed nothing: a restore that waits for sessions to end, or an
// Open that found its node.
func isVain(reply any) bool {
	switch r := reply.(type) {
	case *pb.RestoreReply:
		return !r.GetRestored() && r.GetSessions() > 0
	case *pb.OpenReply:
		return !r.GetCreated()
	}
	return false
}

// mayDo reports whether a principal has the right to a request in one of some states. Then an act whose outcome
// is unknown is recorded as surely as a known one; else that principal could hide it behind a flood.
func (s *service) mayDo(m *master.Master, may rights, principal string, node api.Name, request any) bool {
	if m == nil || principal == "" {
		return false
	}
	//mutant: if may.isOperator("") { //by TestAuditOfWhatMayHaveBeenDone of ./cell
	if may.isOperator(principal) {
		return true
	}
	switch q := request.(type) {
	case *pb.OpenRequest:
		return may.hasRight(principal, node.Parent(), namespace.ToWrite)
	case *pb.TxnRequest:
		return may.hasRight(principal, node, namespace.ToWrite) || may.hasRight(principal, node.Parent(), namespace.ToWrite)
	case *pb.BreakLockRequest:
		p, err := api.ParsePath(q.GetPath())
		return err == nil && may.hasRight(principal, p.Name(), namespace.ToChange)
	case *pb.SetACLRequest:
		return s.isFor(m, q, namespace.ToChange)
	case *pb.SetContentsRequest:
		return s.isFor(m, q, namespace.ToWrite)
	case *pb.DeleteRequest:
		return s.isFor(m, q, namespace.ToWrite)
	}
	return false
}

// rights are what each principal may do, in any of some states.
type rights []*raftfsm.State

func (r rights) isOperator(principal string) bool {
	return slices.ContainsFunc(r, func(s *raftfsm.State) bool { return s.PermitOperator(principal) == nil })
}

func (r rights) hasRight(principal string, name api.Name, right namespace.Rights) bool {
	return slices.ContainsFunc(r, func(s *raftfsm.State) bool {
		node, there := s.Tree.Get(name)
		return there && s.Tree.Permit(node, principal, right) == nil
	})
}

func (s *service) isFor(m *master.Master, q handleRequest, right namespace.Rights) bool {
	who, err := s.callerOf(m, q.GetCaller())
	if err != nil {
		return false
	}
	h, err := s.handleOf(m, who, q.GetHandle())
	//mutant: return err != nil && h.Rights&right != 0 //by TestAuditOfWhatMayHaveBeenDone of ./cell
	return err == nil && h.Rights&right != 0
}

func mayBeDone(code api.Code) bool {
	return slices.Contains([]api.Code{api.OK, api.Uncertain, api.Cancelled, api.DeadlineExceeded}, code)
}

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
	case *pb.TxnRequest:
		return scope == listsAlone && len(listsOf(q)) > 0
	}
	return scope == everyCall || scope == listsAlone && isList(node)
}

func isList(node api.Name) bool { return strings.HasPrefix(string(node), string(api.ACLDir)+"/") }

// nodeOf returns the name of the node that a request concerns, if any, and if a master can tell. m may be nil.
func (s *service) nodeOf(m *master.Master, request any) (name api.Name, known bool) {
	if m == nil {
		return "", false
	}
	named := func(token []byte) (api.Name, bool) {
		h, err := s.signerOf(m).parseHandle(token)
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

// maxSubject limits what is recorded of a request, in bytes. A caller may send long paths and names.
const maxSubject = api.MaxPath

// subjectOf returns what a request concerns, unless it uses a handle.
func subjectOf(request any) string {
	text := namedIn(request)
	return strings.ToValidUTF8(text[:min(len(text), maxSubject)], "")
}

func namedIn(request any) string {
	switch q := request.(type) {
	case *pb.EndSessionRequest:
		if q.GetTarget() != 0 {
			return "session " + api.SessionID(q.GetTarget()).String()
		}
	case *pb.SetQuotaRequest:
		return cmp.Or(q.GetPath(), q.GetPrincipal())
	case *pb.TransferRequest:
		if q.GetSilent() {
			return fmt.Sprintf("no master for %v", time.Duration(q.GetVacantNs()))
		}
		return q.GetTo()
	case *pb.ChangeMembersRequest:
		return strings.TrimSpace(q.GetAdd() + " " + q.GetRaft() + " " + cmp.Or(q.GetRemove(), q.GetKeep()))
	case *pb.TxnRequest: // the first change
		if all := q.GetOperations(); len(all) > 0 {
			if p, err := api.ParsePath(all[0].GetPath()); err == nil {
				return p.String()
			}
		}
	case interface{ GetPath() string }:
		return q.GetPath()
	}
	return ""
}
