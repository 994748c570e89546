package wire

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
)

// Replica is what the services need of their replica.
type Replica interface {
	// Master returns the replica's mastership, or the error that names the master.
	Master() (*master.Master, error)
	Location() Location
	// Status returns what this replica says of itself, in the only row, and of the cell. Only the master sets the numbers of
	// sessions, nodes and locks, and lists acts, but that of an outage, which the former master lists.
	Status() api.Status
	Members() ([]api.Member, error)
	// Counts returns what this replica has counted as master, by name; see api.Overview.
	Counts() map[string]uint64
	// Takeovers returns this replica's last take-overs, the latest first, at most eight.
	Takeovers() []api.Takeover
	// Transfer hands the mastership to a replica, "" for any. It returns the new master, "" if unknown.
	Transfer(ctx context.Context, to string) (master string, err error)
	// Vacate leaves the cell without a master until the outage is over or ctx ends. Then the others elect one.
	Vacate(ctx context.Context, m *master.Master, o Outage) error
	// Levels asks every member for the newest feature level that it supports.
	Levels(ctx context.Context) ([]api.MemberLevel, error)
	// Newcomer asks a joining replica for its identity and newest feature level.
	Newcomer(ctx context.Context, id, raft string) (one raftfsm.Member, maxLevel int, err error)
	// MayLeave returns an error if a replica cannot leave because too few others answer. joined says that
	// another one joins first.
	MayLeave(ctx context.Context, id string, joined bool) error
	// Debug returns a part of the replica's internal state, of any length, if the principal is an operator as
	// far as the replica knows.
	Debug(principal, part string) ([]byte, error)
	// Founders returns the replicas in Raft's configuration.
	Founders() []raftfsm.Member
}

// Outage is a time without a master that an operator requests.
type Outage struct {
	Length    time.Duration // before the other replicas can find out
	Reason    string
	Principal string // of the operator; "" if clients are not identified
}

// Location says where the master is, as far as this replica knows.
type Location struct {
	CellID  api.CellID
	Epoch   uint64
	Master  string // its id; empty if unknown
	Address string // where clients reach it
	Servers []string

	ServersVersion uint64 // of Servers; 0 if some may be missing
}

// Locate is served by every replica, from what it knows now.
func (s *service) Locate(_ context.Context, q *pb.LocateRequest) (*pb.LocateReply, error) {
	if err := s.checkCell(q.GetCell()); err != nil {
		return nil, s.fail("locate", err)
	}
	l := s.cfg.Replica.Location()
	return &pb.LocateReply{
		Cell: s.cfg.Cell, CellId: string(l.CellID), Replica: s.cfg.ID, Epoch: l.Epoch, Master: l.Master, MasterAddress: l.Address, Servers: l.Servers,
		ServersVersion: l.ServersVersion,
	}, nil
}

func (s *service) Status(context.Context, *pb.StatusRequest) (*pb.StatusReply, error) {
	is := s.cfg.Replica.Status()
	reply := pb.Message[pb.StatusReply](is)
	reply.Replica = pb.Message[pb.ReplicaStatus](is.Replicas[0])
	return reply, nil
}

func (s *service) Members(context.Context, *pb.MembersRequest) (*pb.MembersReply, error) {
	list, err := s.cfg.Replica.Members()
	if err != nil {
		return nil, s.fail("members", err)
	}
	return &pb.MembersReply{Members: pb.Messages[pb.Member](list)}, nil
}

// Transfer is for operators: it interrupts the service.
func (s *service) Transfer(ctx context.Context, q *pb.TransferRequest) (*pb.TransferReply, error) {
	return inSession(s, "transfer", &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.TransferReply, error) {
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
