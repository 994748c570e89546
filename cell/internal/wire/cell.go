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
	Status() Status
	Members() ([]Member, error)
	// Counts returns what this replica has counted as master, by name; see client.Overview.
	Counts() map[string]uint64
	// Takeovers returns this replica's last take-overs, the latest first, at most eight.
	Takeovers() []Takeover
	// Transfer hands the mastership to a replica, "" for any. It returns the new master, "" if unknown.
	Transfer(ctx context.Context, to string) (master string, err error)
	// Vacate leaves the cell without a master until the outage is over or ctx ends. Then the others elect one.
	Vacate(ctx context.Context, m *master.Master, o Outage) error
	// Levels asks every member for the newest feature level that it supports.
	Levels(ctx context.Context) ([]MemberLevel, error)
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

// Takeover describes how this replica became the master.
type Takeover struct {
	Epoch       api.Epoch
	ElectedUnix int64 // by this replica's clock, for display
	Sessions    int   // sessions that outlived the previous master
	Phases      []TakeoverPhase
}

// TakeoverPhase is a part of a take-over; some overlap. See client.TakeoverPhase for the names.
type TakeoverPhase struct {
	Name       string
	Begin, End time.Duration // since the election
	Unfinished bool          // End is now
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

// Status describes a replica.
type Status struct {
	CellID    api.CellID
	Master    string
	Epoch     uint64
	Role      string
	Client    string // where clients reach it
	Term      uint64
	Last      uint64 // index of the log
	Applied   uint64
	Healthy   bool
	Version   string
	DiskFree  int64
	StateHash string
	LogStore  string
	Level     int // the feature level of the cell
	MaxLevel  int // the newest that the replica knows

	Sessions, Nodes, Locks int // only the master sets them

	Restored *raftfsm.Restoration // the last one; nil if there was none
	Acts     []Act                // under way; only the master lists them, and only the one that began an outage lists it
}

// Act is an operation of several steps, under way.
type Act struct {
	Kind      string // restore, outage, or the phase of a replica
	Replica   string
	Principal string        // its principal; empty if it is the master's
	Session   api.SessionID // that takes its steps; 0: the master does
	SinceUnix int64
	Sealed    bool   // no session can begin
	Waits     string // what its next step waits for
}

// Member describes a member of the cell.
type Member struct {
	ID, Raft, Client, HTTP string
	Voter                  bool
	Phase                  string // empty unless it is joining or leaving
	Waits                  string // why its phase does not advance
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
	var acts []*pb.Act
	for _, a := range is.Acts {
		acts = append(acts, &pb.Act{Kind: a.Kind, Replica: a.Replica, Principal: a.Principal, Session: uint64(a.Session), SinceUnix: a.SinceUnix, Sealed: a.Sealed, Waits: a.Waits})
	}
	return &pb.StatusReply{
		Cell:   s.cfg.Cell,
		CellId: string(is.CellID),
		Master: is.Master,
		Epoch:  is.Epoch,
		Replica: &pb.ReplicaStatus{
			Id:            s.cfg.ID,
			Role:          is.Role,
			Client:        is.Client,
			Term:          is.Term,
			Last:          is.Last,
			Applied:       is.Applied,
			Healthy:       is.Healthy,
			Version:       is.Version,
			DiskFreeBytes: is.DiskFree,
			StateHash:     is.StateHash,
			LogStore:      is.LogStore,
			MaxLevel:      uint32(is.MaxLevel),
		},
		Sessions: uint64(is.Sessions),
		Nodes:    uint64(is.Nodes),
		Locks:    uint64(is.Locks),
		Level:    uint32(is.Level),
		Restored: restoration(is.Restored),
		Acts:     acts,
	}, nil
}

func (s *service) Members(context.Context, *pb.MembersRequest) (*pb.MembersReply, error) {
	list, err := s.cfg.Replica.Members()
	if err != nil {
		return nil, s.fail("members", err)
	}
	reply := &pb.MembersReply{}
	for _, m := range list {
		reply.Members = append(reply.Members, &pb.Member{Id: m.ID, Raft: m.Raft, Client: m.Client, Http: m.HTTP, Voter: m.Voter, Phase: m.Phase, Waits: m.Waits})
	}
	return reply, nil
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

func restoration(r *raftfsm.Restoration) *pb.Restoration {
	if r == nil {
		return nil
	}
	return &pb.Restoration{AtUnix: r.AtUnix, Counter: r.Counter, Index: r.Source.Index, TakenUnix: r.Source.TakenUnix, Recovered: r.Source.Recovered}
}
