package wire

import (
	"context"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
)

// Overview reports the cell's work, and what waits longest.
func (s *service) Overview(ctx context.Context, q *pb.OverviewRequest) (*pb.OverviewReply, error) {
	return onMaster(s, "overview", "", func(m *master.Master) (*pb.OverviewReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		o, err := m.Inspector.For(principalOf(ctx)).Overview(ctx, int(min(q.GetMost(), 1<<16)))
		if err != nil {
			return nil, err
		}
		reply := &pb.OverviewReply{Epoch: uint64(o.Epoch), Whole: o.Whole, Backlog: backlog(o.Backlog), MoreWaits: uint32(o.MoreWaits), MoreHoldups: uint32(o.MoreHoldups)}
		if o.Whole {
			reply.Counts = s.cfg.Replica.Counts()
			reply.Takeovers = takeovers(s.cfg.Replica.Takeovers())
		}
		for _, l := range o.Waits {
			reply.Waits = append(reply.Waits, lockInfo(l))
		}
		for _, h := range o.Holdups {
			one := &pb.Holdup{Path: h.Path, WaitingNs: int64(h.Waiting), MoreSlow: uint32(h.MoreSlow)}
			for _, slow := range h.Slow {
				one.Slow = append(one.Slow, pb.NewParty(slow))
			}
			reply.Holdups = append(reply.Holdups, one)
		}
		return reply, nil
	})
}

func takeovers(list []Takeover) (encoded []*pb.Takeover) {
	for _, t := range list {
		one := &pb.Takeover{Epoch: uint64(t.Epoch), ElectedUnix: t.ElectedUnix, Sessions: uint64(t.Sessions)}
		for _, p := range t.Phases {
			one.Phases = append(one.Phases, &pb.TakeoverPhase{Name: p.Name, BeginNs: int64(p.Begin), EndNs: int64(p.End), Unfinished: p.Unfinished})
		}
		encoded = append(encoded, one)
	}
	return encoded
}

func backlog(b master.Backlog) *pb.Backlog {
	return &pb.Backlog{
		Waiters: uint64(b.Waiters), Changes: uint64(b.Changes), Delays: uint64(b.Delays), Handles: uint64(b.Handles),
		MailBytes: uint64(b.Mail), CopyBytes: uint64(b.Copies), Proposals: uint64(b.Proposals),
	}
}
