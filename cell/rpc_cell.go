package cell

import (
	"context"
	"fmt"
	"runtime/debug"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/hashicorp/raft"
)

// Locate is answered by every replica, from what it knows at once.
func (s *service) Locate(_ context.Context, q *pb.LocateRequest) (*pb.LocateReply, error) {
	if err := s.checkCell(q.GetCell()); err != nil {
		return nil, s.fail("locate", "", err)
	}
	h, state := s.r.Health(), s.r.fsm.State()
	reply := &pb.LocateReply{Cell: h.Cell, CellId: string(state.CellID), Replica: h.Replica, Epoch: h.Epoch}
	if h.Ready {
		reply.Master, reply.MasterAddress = h.Master, h.Address
	}
	return reply, nil
}

// Status describes this replica. What it costs does not depend on how much the cell
// holds: the hash is the running one by which replicas compare themselves, of the
// same moment as the index applied.
func (s *service) Status(context.Context, *pb.StatusRequest) (*pb.StatusReply, error) {
	r, state := s.r, s.r.fsm.State()
	health := r.Health()
	reply := &pb.StatusReply{
		Cell: r.cfg.Cell, CellId: string(state.CellID), Master: health.Master, Epoch: health.Epoch,
		Replica: &pb.ReplicaStatus{
			Id: r.cfg.ID, Role: health.Role, Client: r.clientAddress(r.cfg.ID), Term: r.raft.CurrentTerm(), Last: r.raft.LastIndex(),
			Applied: state.Applied, Healthy: health.Ready, Version: Version(), DiskFreeBytes: disk.Free(r.cfg.Data),
			StateHash: fmt.Sprintf("%016x", state.History), LogStore: string(r.cfg.LogStore),
		},
	}
	if r.master.Load() != nil {
		counts := state.Tree.Counts()
		reply.Sessions, reply.Nodes, reply.Locks = uint64(state.Sessions.Len()), uint64(counts.Nodes), uint64(counts.Locks)
	}
	return reply, nil
}

func (s *service) Members(context.Context, *pb.MembersRequest) (*pb.MembersReply, error) {
	future := s.r.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return nil, s.fail("members", "", err)
	}
	reply := &pb.MembersReply{}
	for _, member := range future.Configuration().Servers {
		one := &pb.Member{
			Id: string(member.ID), Raft: string(member.Address), Client: s.r.clientAddress(string(member.ID)),
			Voter: member.Suffrage == raft.Voter,
		}
		for _, m := range s.r.cfg.Members {
			if m.ID == one.Id {
				one.Http = m.HTTP
			}
		}
		reply.Members = append(reply.Members, one)
	}
	return reply, nil
}

// role says what a replica is, in the words of cell status.
func (r *Replica) role() string {
	switch {
	case r.master.Load() != nil:
		return "master"
	case r.raft.State() == raft.Follower:
		return "replica"
	}
	return "candidate"
}

// Version returns the version of this build: of the module, or "devel".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
