package wire

import (
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
)

func (s *service) ListQuotas(ctx context.Context, q *pb.ListQuotasRequest) (*pb.ListQuotasReply, error) {
	return listing(ctx, s, "list quotas", "", q, func(in *master.Inspector, after []byte) (page master.Page[api.QuotaUse], err error) {
		switch {
		case q.GetPrincipal() != "":
			if err = CheckPrincipal(q.GetPrincipal()); err == nil {
				page, err = in.FindQuota(ctx, q.GetPrincipal(), "")
			}
		case q.GetPath() != "":
			var path api.Path
			if path, err = s.pathOf(q.GetPath()); err == nil {
				page, err = in.FindQuota(ctx, "", path.Name())
			}
		default:
			page, err = in.ListQuotas(ctx, after, most(q))
		}
		return page, err
	}, func(page []api.QuotaUse, next []byte) *pb.ListQuotasReply {
		return &pb.ListQuotasReply{Quotas: pb.Messages[pb.QuotaInfo](page), Next: next}
	})
}

func (s *service) SetQuota(ctx context.Context, q *pb.SetQuotaRequest) (*pb.SetQuotaReply, error) {
	return inSession(s, "set quota", &subject{path: q.GetPath() + q.GetPrincipal()}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.SetQuotaReply, error) {
		c, err := s.quotaOf(ctx, m, who, q)
		if err != nil {
			return nil, err
		}
		return &pb.SetQuotaReply{}, m.SetQuota(ctx, c)
	})
}

func (s *service) quotaOf(ctx context.Context, m *master.Master, who master.Caller, q *pb.SetQuotaRequest) (raftfsm.SetQuota, error) {
	a := q.GetAllowed()
	allowed := pb.Record[api.Quota](a)
	var numbers []byte
	for _, n := range []uint64{uint64(a.GetNodes()), uint64(a.GetBytes()), uint64(a.GetSessions()), uint64(a.GetHandles()), uint64(a.GetWaiters())} {
		numbers = append(numbers, number(&n)...)
	}
	mutation, err := mutationOf(who.Session, q.GetMutation(), []byte("quota"), []byte(q.GetPath()), []byte(q.GetPrincipal()), numbers)
	c := raftfsm.SetQuota{Mutation: mutation, Principal: q.GetPrincipal(), Quota: allowed}
	if err == nil {
		err = allowed.Validate()
	}
	if err != nil {
		return c, err
	}
	switch {
	case (q.GetPath() == "") == (q.GetPrincipal() == ""):
		return c, api.Errorf(api.InvalidArgument, "a quota is of a principal or of a directory; name one of them")
	case q.GetPrincipal() != "":
		return c, CheckPrincipal(q.GetPrincipal())
	case allowed.Sessions+allowed.Handles+allowed.Waiters > 0:
		return c, api.Errorf(api.InvalidArgument, "a directory's quota is of nodes and bytes only")
	}
	directory, err := s.nodeAt(ctx, m, q.GetPath())
	if err != nil {
		if denied := m.Inspector.CheckOperator(ctx, who); denied != nil {
			err = denied // others do not learn what is there
		}
		_, err = m.Files.Refuse(ctx, mutation, err) // the command may have been done already
	}
	c.Directory = &directory
	return c, err
}
