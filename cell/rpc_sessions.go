package cell

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/raftfsm"
)

func (s *service) CreateSession(ctx context.Context, q *pb.CreateSessionRequest) (*pb.CreateSessionReply, error) {
	const op = "create session"
	c, err := s.sessionOf(q)
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	reply, err := m.createSession(ctx, c)
	return reply, s.fail(op, "", err)
}

// sessionOf validates what a client says of the session it wants.
func (s *service) sessionOf(q *pb.CreateSessionRequest) (raftfsm.CreateSession, error) {
	lease := time.Duration(q.GetLeaseNs())
	if lease == 0 {
		lease = api.DefaultLease
	}
	c := raftfsm.CreateSession{
		Nonce: q.GetNonce(), Host: q.GetHost(), PID: int(q.GetPid()), Lease: lease, MayCache: q.GetMayCache(), Principal: anonymous,
	}
	if s.r.cfg.InsecurePrincipals && q.GetAs() != "" {
		c.Principal = q.GetAs()
	}
	switch {
	case len(c.Nonce) != 16:
		return c, api.Errorf(api.InvalidArgument, "the nonce is %d bytes long; want 16 random ones", len(c.Nonce))
	case lease < api.MinLease || lease > api.MaxLease:
		return c, api.Errorf(api.InvalidArgument, "a lease of %v; it must be between %v and %v", lease, api.MinLease, api.MaxLease)
	case len(c.Host) > api.MaxComponent || !utf8.ValidString(c.Host):
		return c, api.Errorf(api.InvalidArgument, "the host's name must be UTF-8 of at most %d bytes", api.MaxComponent)
	case q.GetAs() != "" && !s.r.cfg.InsecurePrincipals:
		return c, api.Errorf(api.Unauthenticated, "this cell does not take a client's word for its principal (--as): its replicas would have to run with --insecure-principals")
	}
	if err := validPrincipal(c.Principal); err != nil {
		return c, err
	}
	return c, s.wrongCell(q.GetCell())
}

// validPrincipal checks that a principal can stand in a line of an access
// control list, and be told from what else may stand there.
func validPrincipal(name string) error {
	fault := ""
	switch {
	case name == "" || len(name) > api.MaxPrincipal || !utf8.ValidString(name):
		fault = fmt.Sprintf("want UTF-8 of 1 to %d bytes", api.MaxPrincipal)
	case strings.ContainsFunc(name, unicode.IsControl), strings.TrimSpace(name) != name:
		fault = "it has a control character, or a space at its end"
	case name == "*" || name[0] == '@' || name[0] == '#':
		fault = "'*', '@' and '#' mean something else in an access control list"
	}
	if fault != "" {
		return api.Errorf(api.InvalidArgument, "%.40q cannot be a principal: %s", name, fault)
	}
	return nil
}

// anonymous is the principal of a client that has no identity.
const anonymous = "anonymous"

func (s *service) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveReply, error) {
	const op = "keep alive"
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	who, err := m.identify(q.GetCaller())
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	reply, err := m.keepAlive(ctx, who, heard{received: q.GetReceived(), acknowledged: q.GetAcknowledged(), grant: q.GetGrant()})
	return reply, s.fail(op, "", err)
}

func (s *service) EndSession(ctx context.Context, q *pb.EndSessionRequest) (*pb.EndSessionReply, error) {
	const op = "end session"
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	if q.GetTarget() != 0 {
		return &pb.EndSessionReply{}, s.fail(op, api.SessionID(q.GetTarget()).String(), s.endOther(ctx, m, q))
	}
	who, err := m.identify(q.GetCaller())
	if err == nil {
		err = m.endSession(ctx, who.session)
	}
	return &pb.EndSessionReply{}, s.fail(op, "", err)
}

func (s *service) endOther(ctx context.Context, m *master, q *pb.EndSessionRequest) error {
	who, err := m.admit(q.GetCaller())
	if err != nil {
		return err
	}
	mutation, err := s.mutation(who, q.GetMutation(), []byte("end"), number(&q.Target), []byte(q.GetReason()))
	if err == nil {
		err = validReason(q.GetReason())
	}
	if err != nil {
		return err
	}
	return m.endOther(ctx, raftfsm.Doom{Mutation: mutation, Target: api.SessionID(q.GetTarget()), Why: q.GetReason()})
}

// validReason checks what is said to somebody who loses something.
func validReason(text string) error {
	if text == "" || len(text) > api.MaxReason || !utf8.ValidString(text) {
		return api.Errorf(api.InvalidArgument, "the reason must be UTF-8 of 1 to %d bytes: whoever loses something is told", api.MaxReason)
	}
	return nil
}
