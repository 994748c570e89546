package wire

import (
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"google.golang.org/protobuf/proto"
)

func (s *service) Restore(ctx context.Context, q *pb.RestoreRequest) (*pb.RestoreReply, error) {
	const op = "restore a backup"
	if q.GetGiveUp() && len(q.GetCaller().GetSession()) == 0 {
		return onMaster(s, op, "", func(m *master.Master) (*pb.RestoreReply, error) {
			operator, err := s.principalAs(ctx, q.GetAs())
			if err == nil {
				err = m.GiveUpRestore(ctx, operator, api.SessionID(q.GetOf()))
			}
			return &pb.RestoreReply{}, err
		})
	}
	return inSession(s, op, &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.RestoreReply, error) {
		step, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.RestoreRequest{Begin: q.GetBegin(), Part: q.GetPart(), Seal: q.GetSeal(), Finish: q.GetFinish(), GiveUp: q.GetGiveUp(), Of: q.GetOf()})
		if err != nil {
			return nil, err
		}
		mutation, err := mutationOf(who.Session, q.GetMutation(), []byte("restore"), step)
		if err != nil {
			return nil, err
		}
		if err := m.Inspector.CheckOperator(ctx, who); err != nil { // before a part is decoded, or the log gets megabytes
			if _, err := m.Files.Refuse(ctx, mutation, err); err != nil {
				return nil, err
			} // else it was done before
			return &pb.RestoreReply{Restored: q.GetFinish(), Counter: m.State().Counter, CellId: string(m.State().CellID)}, nil
		}
		c, err := restoreOf(q)
		if err != nil {
			return nil, err
		}
		c.Mutation = mutation
		restored, sessions, err := m.Restore(ctx, c)
		return &pb.RestoreReply{
			Restored: restored,
			Sessions: uint64(sessions),
			Counter:  m.State().Counter,
			CellId:   string(m.State().CellID),
		}, err
	})
}

func restoreOf(q *pb.RestoreRequest) (c raftfsm.Restore, err error) {
	steps := 0
	if begin := q.GetBegin(); begin != nil {
		steps++
		if c.Begin, err = restoreBeginOf(begin); err != nil {
			return c, err
		}
	}
	if part := q.GetPart(); part != nil {
		steps++
		if c.Add, err = raftfsm.DecodeRestoreAdd(part.GetRecords()); err != nil {
			return c, err
		}
		c.Add.Part = part.GetPart()
	}
	if seal := q.GetSeal(); seal != nil {
		steps++
		c.Seal = &raftfsm.RestoreSeal{Why: seal.GetWhy()}
		if err := checkReason(seal.GetWhy()); err != nil {
			return c, err
		}
	}
	if c.Finish = q.GetFinish(); c.Finish {
		steps++
	}
	if c.GiveUp = q.GetGiveUp(); c.GiveUp {
		steps++
	}
	if steps != 1 {
		return c, api.Errorf(api.InvalidArgument, "a backup is restored step by step: one of begin, part, seal, finish and give_up; not %d of them", steps)
	}
	return c, nil
}

func restoreBeginOf(q *pb.RestoreBegin) (*raftfsm.RestoreBegin, error) {
	id, err := api.ParseCellID(q.GetCellId())
	switch {
	case err != nil:
		return nil, err
	case !api.ValidCell(q.GetCell()):
		return nil, api.Errorf(api.InvalidArgument, "cell: %.40q is no cell's name", q.GetCell())
	case q.GetNodes() > maxRestored || q.GetQuotas() > maxRestored:
		return nil, api.Errorf(api.InvalidArgument, "a backup with %d nodes and %d quotas; at most %d of each can be restored", q.GetNodes(), q.GetQuotas(), maxRestored)
	}
	return &raftfsm.RestoreBegin{
		Cell: q.GetCell(), CellID: id, Level: int(q.GetLevel()), Counter: q.GetCounter(), Nodes: int(q.GetNodes()), Quotas: int(q.GetQuotas()),
		Source: raftfsm.BackupSource{Index: q.GetIndex(), TakenUnix: q.GetTakenUnix(), Recovered: q.GetRecovered()},
	}, nil
}

// maxRestored limits the declared size of a backup, far above any cell.
const maxRestored = 1 << 31
