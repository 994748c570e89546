package wire

import (
	"bytes"
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
)

// ChangeMembers is for operators. The master asks a newcomer for its identity, by its address, before it decides.
func (s *service) ChangeMembers(ctx context.Context, q *pb.ChangeMembersRequest) (*pb.ChangeMembersReply, error) {
	const op = "change the members"
	return inSession(s, op, &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.ChangeMembersReply, error) {
		if err := checkChange(q); err != nil {
			return nil, err
		}
		mutation, err := mutationOf(who.Session, q.GetMutation(), []byte(op), []byte(q.GetAdd()), []byte(q.GetRaft()), []byte(q.GetRemove()), fmt.Append(nil, q.GetSpare()), []byte(q.GetKeep()))
		if err != nil {
			return nil, err
		}
		refuse := func(err error) (*pb.ChangeMembersReply, error) { // if the change was done before, its effects are no reason to reject it
			_, err = m.Files.Refuse(ctx, mutation, err)
			return &pb.ChangeMembersReply{}, err
		}
		if err := m.Inspector.CheckOperator(ctx, who); err != nil { // before it can make this replica connect anywhere
			return refuse(err)
		}
		c := raftfsm.ChangeMembers{Mutation: mutation, Founders: s.cfg.Replica.Founders(), Remove: q.GetRemove(), Keep: q.GetKeep()}
		if q.GetRemove() != "" { // the decided change waits for a majority of the remaining replicas
			if err := s.cfg.Replica.MayLeave(ctx, q.GetRemove(), q.GetAdd() != ""); err != nil {
				return refuse(err)
			}
		}
		if q.GetAdd() != "" {
			one, knows, err := s.cfg.Replica.Newcomer(ctx, q.GetAdd(), q.GetRaft())
			if err != nil {
				return refuse(err)
			}
			if knows < m.State().Level {
				return nil, api.Errorf(api.InvalidArgument, "replica %s knows feature levels up to %d, and the cell is at level %d: start it with the version of the others", one.ID, knows, m.State().Level)
			}
			one.Replaces, c.Remove, c.Add = q.GetRemove(), "", &one
			if q.GetSpare() {
				one.Phase = raftfsm.Standby
			}
		}
		return &pb.ChangeMembersReply{}, m.ChangeMembers(ctx, c)
	})
}

func checkChange(q *pb.ChangeMembersRequest) error {
	switch {
	case q.GetKeep() != "" && (q.GetAdd() != "" || q.GetRemove() != ""):
		return api.Errorf(api.InvalidArgument, "keep: that a replica leaves is taken back alone")
	case q.GetAdd() == "" && q.GetRemove() == "" && q.GetKeep() == "":
		return api.Errorf(api.InvalidArgument, "add, remove, keep: name a replica to add, one to remove, or one that is leaving and is to stay")
	case q.GetAdd() != "" && !api.ValidCell(q.GetAdd()):
		return api.Errorf(api.InvalidArgument, "add: %.64q cannot be a replica's id: use letters, digits, '-', '_' and '.', as in r6", q.GetAdd())
	case q.GetSpare() && (q.GetAdd() == "" || q.GetRemove() != ""):
		return api.Errorf(api.InvalidArgument, "spare: a spare is added, and replaces nobody yet")
	case (q.GetAdd() == "") != (q.GetRaft() == ""):
		return api.Errorf(api.InvalidArgument, "add, raft: a replica is added with its id and its raft address")
	}
	return nil
}

func (s *service) Backup(ctx context.Context, q *pb.BackupRequest) (*pb.BackupReply, error) {
	return onMaster(s, "backup", "", func(m *master.Master) (*pb.BackupReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		data, last, err := m.Inspector.Backups.Read(ctx, principalOf(ctx), q.GetBackup(), q.GetPart())
		return &pb.BackupReply{Data: data, Last: last}, err
	})
}

// Debug is served by every replica, so that a cell without a master can be asked. Each replica decides who is
// an operator by the log that it has applied, so one that is cut off may still serve a former operator.
func (s *service) Debug(ctx context.Context, q *pb.DebugRequest) (*pb.DebugReply, error) {
	operator, err := s.principalAs(ctx, q.GetAs())
	var text []byte
	if err == nil {
		text, err = s.cfg.Replica.Debug(operator, q.GetPart())
	}
	if err != nil {
		return nil, s.fail("debug", err)
	}
	last := lastLines(text, api.MaxPageBytes)
	return &pb.DebugReply{Text: last, Cut: len(last) < len(text)}, nil
}

func lastLines(text []byte, most int) []byte {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	return text[bytes.IndexByte(text, '\n')+1:]
}
