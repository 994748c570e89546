package wire

import (
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
)

func (s *service) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryReply, error) {
	return onMaster(s, "history", q.GetPath(), func(m *master.Master) (*pb.HistoryReply, error) {
		path, err := s.pathOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		h, err := m.Inspector.For(principalOf(ctx)).History(ctx, path)
		if err != nil {
			return nil, err
		}
		reply := &pb.HistoryReply{MoreHolders: uint32(h.MoreHolders)}
		for _, one := range h.Holdings {
			reply.Holdings = append(reply.Holdings, holding(one))
		}
		return reply, nil
	})
}

func holding(h api.Holding) *pb.Holding {
	party := api.Holder{Session: h.Session, Principal: h.Principal, Host: h.Host, PID: h.PID, Reason: h.Reason, SinceUnix: h.FromUnix}
	return &pb.Holding{
		Party:       pb.NewParty(party),
		Mode:        pb.LockMode(h.Mode),
		Generation:  uint64(h.Generation),
		Until:       uint64(h.Until),
		ToUnix:      h.ToUnix,
		End:         pb.EndReason(h.End),
		LockDelayNs: int64(h.Delay),
		EndedBy:     h.EndedBy,
		EndedWhy:    h.EndedWhy,
	}
}
