package wire

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"google.golang.org/protobuf/proto"
)

// ChangeMembers is for operators. The master asks a newcomer for its identity, by its address, before it decides.
func (s chubbyService) ChangeMembers(ctx context.Context, q *pb.ChangeMembersRequest) (*pb.ChangeMembersReply, error) {
	const op = "change the members"
	return inSession(s.service, op, &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.ChangeMembersReply, error) {
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

func (s chubbyService) Backup(ctx context.Context, q *pb.BackupRequest) (*pb.BackupReply, error) {
	return onMaster(s.service, "backup", "", func(m *master.Master) (*pb.BackupReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		data, last, err := m.Inspector.Backups.Read(ctx, principalOf(ctx), q.GetBackup(), q.GetPart())
		return &pb.BackupReply{Data: data, Last: last}, err
	})
}

// Debug is served by every replica, so that a cell without a master can be asked. Each replica decides who is
// an operator by the log that it has applied, so one that is cut off may still serve a former operator.
func (s cellService) Debug(ctx context.Context, q *pb.DebugRequest) (*pb.DebugReply, error) {
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

// Transfer is for operators: it interrupts the service.
func (s chubbyService) Transfer(ctx context.Context, q *pb.TransferRequest) (*pb.TransferReply, error) {
	return inSession(s.service, "transfer", &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.TransferReply, error) {
		//mutant: if err := m.Inspector.CheckOperator(ctx, who); err != nil && false { //by TestOutagesAreRefused of ./cell
		if err := m.Inspector.CheckOperator(ctx, who); err != nil {
			return nil, err
		}
		vacant := time.Duration(q.GetVacantNs())
		switch {
		case vacant < 0 || vacant > api.MaxOutage:
			return nil, api.Errorf(api.InvalidArgument, "vacant_ns: a cell may have no master for 0 to %v, not for %v", api.MaxOutage, vacant)
		case len(q.GetReason()) > api.MaxReason:
			return nil, api.Errorf(api.InvalidArgument, "reason: %d bytes; at most %d are allowed", len(q.GetReason()), api.MaxReason)
		case q.GetSilent():
			o := Outage{Length: vacant, Reason: q.GetReason(), Principal: s.whoCalls(ctx, m, q)}
			return &pb.TransferReply{}, s.cfg.Replica.Vacate(ctx, m, o)
		}
		to, err := s.cfg.Replica.Transfer(ctx, q.GetTo())
		return &pb.TransferReply{Master: to}, err
	})
}

func (s chubbyService) SetQuota(ctx context.Context, q *pb.SetQuotaRequest) (*pb.SetQuotaReply, error) {
	return inSession(s.service, "set quota", &subject{path: q.GetPath() + q.GetPrincipal()}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.SetQuotaReply, error) {
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

func (s chubbyService) Restore(ctx context.Context, q *pb.RestoreRequest) (*pb.RestoreReply, error) {
	const op = "restore a backup"
	if q.GetGiveUp() && len(q.GetCaller().GetSession()) == 0 {
		return onMaster(s.service, op, "", func(m *master.Master) (*pb.RestoreReply, error) {
			operator, err := s.principalAs(ctx, q.GetAs())
			if err == nil {
				err = m.GiveUpRestore(ctx, operator, api.SessionID(q.GetOf()))
			}
			return &pb.RestoreReply{}, err
		})
	}
	return inSession(s.service, op, &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.RestoreReply, error) {
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

// FinishUpgrade is for operators: older binaries cannot follow the cell afterwards. It asks the members each time.
func (s chubbyService) FinishUpgrade(ctx context.Context, q *pb.FinishUpgradeRequest) (*pb.FinishUpgradeReply, error) {
	const op = "finish the upgrade"
	return inSession(s.service, op, &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.FinishUpgradeReply, error) {
		mutation, err := mutationOf(who.Session, q.GetMutation(), []byte(op), []byte(strings.Join(q.GetWithout(), "\x00")))
		if err != nil {
			return nil, err
		}
		if err := m.Inspector.CheckOperator(ctx, who); err != nil {
			_, err = m.Files.Refuse(ctx, mutation, err) // if it was done before, it is not done again
			return &pb.FinishUpgradeReply{Level: uint32(m.State().Level), Newest: uint32(m.State().Level)}, err
		}
		members, err := s.cfg.Replica.Levels(ctx)
		if err != nil {
			return nil, err
		}
		newest, all := newestLevel(members, q.GetWithout())
		//mutant: _ = all; if newest > m.State().Level { //by TestUpgrade of ./cell
		if all && newest > m.State().Level {
			err := m.RaiseLevel(ctx, raftfsm.RaiseLevel{Mutation: mutation, To: newest})
			//mutant: if err != nil { //by TestUpgradeIsFinishedTwiceAtOnce of ./cell
			if err != nil && m.State().Level < newest { // else another call has raised it
				return nil, err
			}
		}
		return pb.Message[pb.FinishUpgradeReply](api.Upgrade{Level: m.State().Level, Newest: newest, Members: members}), nil
	})
}

// newestLevel returns the newest feature level of any member, and whether all have it. It ignores members of
// without that did not answer.
func newestLevel(members []api.MemberLevel, without []string) (newest int, all bool) {
	for _, m := range members {
		newest = max(newest, m.MaxLevel)
	}
	for _, m := range members {
		//mutant: if m.MaxLevel < newest && !slices.Contains(without, m.ID) { //by TestUpgradeWithoutTheLost of ./cell
		if m.MaxLevel < newest && !(m.MaxLevel == 0 && slices.Contains(without, m.ID)) {
			return newest, false
		}
	}
	return newest, true
}
