package wire

import (
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"google.golang.org/grpc"
)

// DrillKind is what a drill does to a cell: what would happen in a failure, at a moment that somebody has chosen, and with
// somebody who looks on.
type DrillKind = pb.DrillKind

// The kinds of which the master does something. Of the others it only knows that they go on.
const (
	HardFailOver = pb.DrillKind_DRILL_KIND_HARD_FAILOVER // the master gives up and falls silent; the others have to find out, and elect
	Outage       = pb.DrillKind_DRILL_KIND_OUTAGE        // the cell has no master for a while
)

// DrillKinds lists the kinds, in the order of their numbers.
func DrillKinds() []DrillKind {
	return []DrillKind{pb.DrillKind_DRILL_KIND_FAILOVER, HardFailOver, Outage, pb.DrillKind_DRILL_KIND_SESSION_LOSS, pb.DrillKind_DRILL_KIND_SLOW_CLIENT}
}

// Drill is a drill that an operator asks for.
type Drill struct {
	Kind      DrillKind
	Limit     time.Duration // when it ends by itself
	Reason    string
	Principal string // who asks; "" if nobody is asked who he is
}

// DrillStatus describes a drill to everybody: not who began it, nor why.
type DrillStatus struct {
	Kind    DrillKind
	Since   time.Duration // how long ago it began
	Running bool
	Left    time.Duration // until it ends by itself, if it is running
	Took    time.Duration // if it is not
}

// Drill is for operators: it stops the service for a while, or says that somebody is about to. The call lasts as long as the drill.
func (s *service) Drill(q *pb.DrillRequest, stream grpc.ServerStreamingServer[pb.DrillReply]) error {
	ctx := stream.Context()
	_, err := inSession(s, "drill", &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.DrillReply, error) {
		//mutant: if err := m.Inspector.CheckOperator(ctx, who); err != nil && false { //by TestDrillsAreRefused of ./cell
		if err := m.Inspector.CheckOperator(ctx, who); err != nil { // before anything is said about drills
			return nil, err
		}
		d := Drill{Kind: q.GetKind(), Limit: time.Duration(q.GetForNs()), Reason: q.GetReason(), Principal: s.whoCalls(ctx, m, q)}
		if err := d.check(); err != nil {
			return nil, err
		}
		return nil, s.cfg.Replica.Drill(ctx, m, d, func() error {
			return stream.Send(&pb.DrillReply{Replica: s.cfg.ID, Epoch: uint64(m.Epoch())})
		})
	})
	return err
}

// check checks what is asked for.
func (d Drill) check() error {
	longest := api.MaxDrill
	if d.Kind == Outage {
		longest = api.MaxOutage
	}
	switch {
	case !slices.Contains(DrillKinds(), d.Kind):
		return api.Errorf(api.InvalidArgument, "kind: this version knows no drill with the number %d", int32(d.Kind))
	case d.Limit <= 0 || d.Limit > longest:
		return api.Errorf(api.InvalidArgument, "for: a drill of the kind %s lasts up to %v, and not %v", d.Kind.Word(), longest, d.Limit)
	case len(d.Reason) > api.MaxReason:
		return api.Errorf(api.InvalidArgument, "reason: it has %d bytes; at most %d are allowed", len(d.Reason), api.MaxReason)
	}
	return nil
}

// drillStatus encodes the description of a drill.
func drillStatus(d *DrillStatus) *pb.DrillStatus {
	if d == nil {
		return nil
	}
	return &pb.DrillStatus{Kind: d.Kind, SinceNs: int64(d.Since), Running: d.Running, LeftNs: int64(d.Left), TookNs: int64(d.Took)}
}
