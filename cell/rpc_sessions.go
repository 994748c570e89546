package cell

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/raftfsm"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
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
	case len(c.Principal) > api.MaxPrincipal || !utf8.ValidString(c.Principal):
		return c, api.Errorf(api.InvalidArgument, "the principal must be UTF-8 of at most %d bytes", api.MaxPrincipal)
	case q.GetAs() != "" && !s.r.cfg.InsecurePrincipals:
		return c, api.Errorf(api.Unauthenticated, "this cell does not take a client's word for its principal (--as): its replicas would have to run with --insecure-principals")
	}
	return c, s.wrongCell(q.GetCell())
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
	reply, err := m.keepAlive(ctx, who, q.GetAcknowledged(), q.GetGrant())
	return reply, s.fail(op, "", err)
}

func (s *service) EndSession(ctx context.Context, q *pb.EndSessionRequest) (*pb.EndSessionReply, error) {
	const op = "end session"
	if q.GetTarget() != 0 {
		return nil, grpcstatus.Error(codes.Unimplemented, "ending another client's session is not served yet")
	}
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	who, err := m.identify(q.GetCaller())
	if err == nil {
		err = m.endSession(ctx, who.session)
	}
	return &pb.EndSessionReply{}, s.fail(op, "", err)
}
