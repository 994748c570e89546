package wire

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
)

// Replica is what the services ask of the replica that serves them.
type Replica interface {
	// Master returns the replica's mastership, or the error that says who is the master
	// instead.
	Master() (*master.Master, error)
	Location() Location
	Status() Status
	Members() ([]Member, error)
	// Counts are what this replica has counted as master, by name; see client.Overview.
	Counts() map[string]uint64
	// Takeovers are the last take-overs of this replica, the latest first; at most eight.
	Takeovers() []Takeover
	// Transfer hands the mastership over, to a replica or to any, and returns the new
	// master; "" if it is not known.
	Transfer(ctx context.Context, to string) (master string, err error)
	// Vacate leaves the cell without a master until the time of the outage is over, or ctx ends, and then has the other replicas
	// find out and elect one.
	Vacate(ctx context.Context, m *master.Master, o Outage) error
	// Levels asks every member of the cell for the newest feature level that it knows.
	Levels(ctx context.Context) ([]MemberLevel, error)
	// Newcomer asks a replica that waits to be let in who it is, and which feature level it knows.
	Newcomer(ctx context.Context, id, raft string) (one raftfsm.Member, maxLevel int, err error)
	// MayLeave returns an error if a replica could not leave now, because too few of those that would stay answer. joined says that
	// another one will have joined before.
	MayLeave(ctx context.Context, id string, joined bool) error
	// Debug returns a part of what the replica knows of itself, for a principal who is an operator as far as it knows. The text
	// may be of any length.
	Debug(principal, part string) ([]byte, error)
	// Founders are the replicas in Raft's configuration.
	Founders() []raftfsm.Member
}

// Takeover is how this replica became the master.
type Takeover struct {
	Epoch       api.Epoch
	ElectedUnix int64 // by the clock of this replica, for display
	Sessions    int   // that outlived the master before
	Phases      []TakeoverPhase
}

// TakeoverPhase is a part of a take-over; some go on beside each other. The names are in the documentation of client.TakeoverPhase.
type TakeoverPhase struct {
	Name       string
	Begin, End time.Duration // since the election
	Unfinished bool          // it goes on, and End is now
}

// Outage is a time without a master that an operator asks for.
type Outage struct {
	Length    time.Duration // before the other replicas can find out
	Reason    string
	Principal string // who asks; "" if nobody is asked who he is
}

// Location says where the master is, as far as this replica knows.
type Location struct {
	CellID  api.CellID
	Epoch   uint64
	Master  string // its id; empty if none is known
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

	Sessions, Nodes, Locks int // the master alone says them

	Restored *raftfsm.Restoration // the last one; nil if there was none
	Acts     []Act                // that are under way; the master says them, and of an outage who began it as the master
}

// Act is something of several steps that is under way in the cell.
type Act struct {
	Kind      string // restore, outage, or the phase of a replica
	Replica   string
	Principal string        // whose it is; empty if it is the master's
	Session   api.SessionID // in which its steps are taken; 0: the master takes them
	SinceUnix int64
	Sealed    bool   // no session can begin before it has ended
	Waits     string // for what its next step waits
}

// Member describes a member of the cell.
type Member struct {
	ID, Raft, Client, HTTP string
	Voter                  bool
	Phase                  string // empty unless it is joining or leaving
	Waits                  string // why it does not come further
}

// Locate is answered by every replica, from what it knows at once.
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

// Status describes this replica.
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

// Members lists the members of the cell.
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

// Transfer is for operators: it stops the service for a moment, or for as long as they want.
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

// restoration encodes a restore of the cell.
func restoration(r *raftfsm.Restoration) *pb.Restoration {
	if r == nil {
		return nil
	}
	return &pb.Restoration{AtUnix: r.AtUnix, Counter: r.Counter, Index: r.Source.Index, TakenUnix: r.Source.TakenUnix, Recovered: r.Source.Recovered}
}
