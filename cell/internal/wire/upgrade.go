package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
)

// FinishUpgrade is for operators: older binaries cannot follow the cell afterwards. It asks the members each time.
func (s *service) FinishUpgrade(ctx context.Context, q *pb.FinishUpgradeRequest) (*pb.FinishUpgradeReply, error) {
	const op = "finish the upgrade"
	return inSession(s, op, &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.FinishUpgradeReply, error) {
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
