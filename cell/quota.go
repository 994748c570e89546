package cell

import (
	"context"
	"iter"
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
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	reply, err := m.listQuotas(ctx, q.GetAfter())
	return reply, s.fail(op, "", err)
}

// The parts of a listing of quotas, which a page's mark begins with.
const (
	ofPrincipals  byte = 1 // by name
	ofDirectories byte = 2 // by their marks
)

// listQuotas lists a page of the principals that use something or have a quota, by
// name, and then of the directories that have one.
func (m *master) listQuotas(ctx context.Context, after []byte) (*pb.ListQuotasReply, error) {
	if _, err := m.fence.prove(ctx); err != nil {
		return nil, err
	}
	done, err := m.page(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	p, reply, state := listing[*pb.QuotaInfo]{}, &pb.ListQuotasReply{}, m.state()
	if len(after) == 0 || after[0] == ofPrincipals {
		reply.Next = m.listPrincipals(&p, state, string(after[min(len(after), 1):]))
		after = nil
	}
	if reply.Next == nil {
		reply.Next = m.listDirectories(&p, state, after[min(len(after), 1):])
	}
	reply.Quotas = p.list
	return reply, nil
}

// listPrincipals lists principals after the one of that name, and returns where the
// next page begins.
func (m *master) listPrincipals(p *listing[*pb.QuotaInfo], state *raftfsm.State, after string) (next []byte) {
	var names []string
	for _, list := range []iter.Seq[string]{state.Tree.Creators(after), state.Sessions.Principals(after), quotaNames(state, after)} {
		some := len(names)
		for name := range list {
			if name > after { // "" is whoever made what the cell began with
				names = append(names, name)
			}
			if len(names)-some > api.MaxPage {
				break
			}
		}
	}
	slices.Sort(names)
	last := ""
	for _, name := range slices.Compact(names) {
		if p.full() {
			next = append([]byte{ofPrincipals}, last...)
			break
		}
		used := state.Tree.Usage(name)
		p.add(&pb.QuotaInfo{
			Principal: name, Allowed: amounts(state.Quota(name)),
			Used: amounts(api.Quota{Nodes: used.Nodes, Bytes: used.Bytes, Sessions: state.Sessions.Of(name)}),
		})
		last = name
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, info := range p.list {
		info.Used.Handles, info.Used.Waiters = int64(m.handles.used[info.GetPrincipal()]), int64(m.queues.used[info.GetPrincipal()])
		m.mu.pause(1)
	}
	return next
}

// quotaNames returns the principals that have a quota of their own.
func quotaNames(state *raftfsm.State, first string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range state.QuotasFrom(first) {
			if !yield(name) {
				return
			}
		}
	}
}

// listDirectories lists directories that have a quota, and returns where the next
// page begins.
func (m *master) listDirectories(p *listing[*pb.QuotaInfo], state *raftfsm.State, behind namespace.Mark) (next []byte) {
	if state.Tree.Counts().Limited == 0 {
		return nil
	}
	for mark, node := range state.Tree.Below("", behind) {
		if p.full() {
			return append([]byte{ofDirectories}, behind...)
		}
		if behind = mark; node.Quota != nil {
			p.add(&pb.QuotaInfo{
				Path:    m.path(node.Name),
				Used:    amounts(api.Quota{Nodes: node.Quota.Used.Nodes, Bytes: node.Quota.Used.Bytes}),
				Allowed: amounts(api.Quota{Nodes: node.Quota.Limit.Nodes, Bytes: node.Quota.Limit.Bytes}),
			})
		}
	}
	return nil
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
	directory, err := s.nodeAt(ctx, m, q.GetPath())
	if err != nil {
		_, err = m.refuse(ctx, c.Mutation, err) // it may have been there
	}
	c.Directory = &directory
	return c, err
}
