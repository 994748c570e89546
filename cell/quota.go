package cell

import (
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

func (s *service) ListQuotas(ctx context.Context, q *pb.ListQuotasRequest) (*pb.ListQuotasReply, error) {
	const op = "list quotas"
	m, err := s.master()
	if err == nil {
		err = s.wrongCell(q.GetCell())
	}
	if err == nil {
		_, err = m.fence.prove(ctx)
	}
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	return &pb.ListQuotasReply{Quotas: m.listQuotas()}, nil
}

// listQuotas lists every principal that uses something or has a quota, by name,
// and every directory that has one.
func (m *master) listQuotas() []*pb.QuotaInfo {
	state := m.state()
	seen := map[string]bool{}
	for principal := range state.Quotas() {
		seen[principal] = true
	}
	var directories []*pb.QuotaInfo
	for node := range state.Tree.All() {
		seen[node.Creator] = true
		if node.Quota != nil {
			directories = append(directories, &pb.QuotaInfo{
				Path:    m.path(node.Name),
				Used:    amounts(api.Quota{Nodes: node.Quota.Used.Nodes, Bytes: node.Quota.Used.Bytes}),
				Allowed: amounts(api.Quota{Nodes: node.Quota.Limit.Nodes, Bytes: node.Quota.Limit.Bytes}),
			})
		}
	}
	for one := range state.Sessions.All() {
		seen[one.Principal] = true
	}
	delete(seen, "") // what the cell began with
	principals := make([]string, 0, len(seen))
	for principal := range seen {
		principals = append(principals, principal)
	}
	slices.Sort(principals)
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*pb.QuotaInfo
	for _, principal := range principals {
		used := state.Tree.Usage(principal)
		list = append(list, &pb.QuotaInfo{
			Principal: principal, Allowed: amounts(state.Quota(principal)),
			Used: amounts(api.Quota{
				Nodes: used.Nodes, Bytes: used.Bytes, Sessions: state.Sessions.Of(principal),
				Handles: m.handles.used[principal], Waiters: m.queues.used[principal],
			}),
		})
	}
	return append(list, directories...)
}

func amounts(q api.Quota) *pb.QuotaAmounts {
	return &pb.QuotaAmounts{
		Nodes: int64(q.Nodes), Bytes: q.Bytes, Sessions: int64(q.Sessions), Handles: int64(q.Handles), Waiters: int64(q.Waiters),
	}
}

func (s *service) SetQuota(ctx context.Context, q *pb.SetQuotaRequest) (*pb.SetQuotaReply, error) {
	const op = "set quota"
	on := q.GetPath() + q.GetPrincipal()
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, on, err)
	}
	c, err := s.setQuota(ctx, m, q)
	if err == nil {
		_, err = m.propose(ctx, raftfsm.Command{SetQuota: &c})
	}
	return &pb.SetQuotaReply{}, s.fail(op, on, err)
}

// setQuota decodes and validates a SetQuota.
func (s *service) setQuota(ctx context.Context, m *master, q *pb.SetQuotaRequest) (raftfsm.SetQuota, error) {
	who, err := m.admit(q.GetCaller())
	if err != nil {
		return raftfsm.SetQuota{}, err
	}
	a := q.GetAllowed()
	allowed := api.Quota{
		Nodes: int(a.GetNodes()), Bytes: a.GetBytes(), Sessions: int(a.GetSessions()), Handles: int(a.GetHandles()), Waiters: int(a.GetWaiters()),
	}
	var numbers []byte
	for _, n := range []uint64{uint64(a.GetNodes()), uint64(a.GetBytes()), uint64(a.GetSessions()), uint64(a.GetHandles()), uint64(a.GetWaiters())} {
		numbers = append(numbers, number(&n)...)
	}
	c := raftfsm.SetQuota{Principal: q.GetPrincipal(), Quota: allowed}
	if c.Mutation, err = s.mutation(who, q.GetMutation(), []byte("quota"), []byte(q.GetPath()), []byte(q.GetPrincipal()), numbers); err != nil {
		return c, err
	}
	if err := allowed.Validate(); err != nil {
		return c, err
	}
	switch {
	case (q.GetPath() == "") == (q.GetPrincipal() == ""):
		return c, api.Errorf(api.InvalidArgument, "a quota is of a principal or of a directory; name one of them")
	case q.GetPrincipal() != "":
		return c, validPrincipal(q.GetPrincipal())
	case allowed.Sessions+allowed.Handles+allowed.Waiters > 0:
		return c, api.Errorf(api.InvalidArgument, "a directory's quota is of nodes and bytes only")
	}
	var directory namespace.Ref
	if directory, err = s.nodeAt(ctx, m, q.GetPath()); err == nil {
		c.Directory = &directory
	}
	return c, err
}
