package wire

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/raftfsm"
	"google.golang.org/grpc"
)

func (s chubbyService) CreateSession(ctx context.Context, q *pb.CreateSessionRequest) (*pb.CreateSessionReply, error) {
	const op = "create session"
	c, err := s.sessionOf(ctx, q)
	if err != nil {
		return nil, s.fail(op, err)
	}
	return onMaster(s.service, op, "", func(m *master.Master) (*pb.CreateSessionReply, error) {
		id, grant, err := m.Sessions.Create(ctx, c)
		if err != nil {
			return nil, err
		}
		// With a nonce that was used before, Create finds that session, even another principal's.
		owner, err := m.Sessions.Principal(id)
		//mutant: if err == nil && owner == "" { //by TestTLSBindsNonces of ./cell
		if err == nil && owner != c.Principal {
			err = api.Errorf(api.InvalidArgument, "the nonce was used before, by another principal: take a random one")
		}
		if err != nil {
			return nil, err
		}
		return &pb.CreateSessionReply{
			Session: s.signerOf(m).session(id),
			Id:      uint64(id),
			Epoch:   uint64(m.Epoch()),
			CellId:  string(m.State().CellID),
			Grant:   leaseOf(grant),

			CacheLease: m.Sessions.NeedsCacheLease(id),
		}, nil
	})
}

func leaseOf(g master.Grant) *pb.Grant {
	return &pb.Grant{LeaseNs: int64(g.Lease), ParkedNs: int64(g.Parked), Number: g.Number}
}

func (s *service) sessionOf(ctx context.Context, q *pb.CreateSessionRequest) (raftfsm.CreateSession, error) {
	lease := time.Duration(q.GetLeaseNs())
	if lease == 0 {
		lease = api.DefaultLease
	}
	c := raftfsm.CreateSession{
		Nonce: q.GetNonce(), Host: q.GetHost(), PID: int(q.GetPid()), Lease: lease, MayCache: q.GetMayCache(),
		CacheLease: q.GetCacheLease(),
	}
	switch {
	case len(c.Nonce) != 16:
		return c, api.Errorf(api.InvalidArgument, "the nonce is %d bytes long; want 16 random ones", len(c.Nonce))
	case lease < api.MinLease || lease > api.MaxLease:
		return c, api.Errorf(api.InvalidArgument, "a lease of %v; it must be between %v and %v", lease, api.MinLease, api.MaxLease)
	case len(c.Host) > api.MaxComponent || !utf8.ValidString(c.Host):
		return c, api.Errorf(api.InvalidArgument, "the host's name must be UTF-8 of at most %d bytes", api.MaxComponent)
	}
	var err error
	if c.Principal, err = s.principalAs(ctx, q.GetAs()); err != nil {
		return c, err
	}
	return c, s.checkCell(q.GetCell())
}

const opKeepAlive = "keep alive"

type keepAlive struct {
	master *master.Master
	call   *master.KeepAlive
}

// KeepAlive waits without a goroutine, over gRPC in the one that gRPC gave it.
func (s chubbyService) KeepAlive(ctx context.Context, q *pb.KeepAliveRequest) (*pb.KeepAliveReply, error) {
	k, err := s.receive(ctx, q)
	if err != nil {
		return nil, err
	}
	return nil, s.await(ctx, k, func() error { return s.conclude(ctx, k) })
}

func (s chubbyService) KeepAlives(q *pb.KeepAliveRequest, stream grpc.ServerStreamingServer[pb.KeepAliveReply]) error {
	ctx := stream.Context()
	k, err := s.receive(ctx, q)
	if err != nil {
		return err
	}
	var rest func() error
	rest = func() error {
		switch told, err := s.tell(k, stream); {
		case err != nil:
			return err
		case told:
			return s.await(ctx, k, rest)
		}
		return s.conclude(ctx, k)
	}
	return s.await(ctx, k, rest)
}

// await parks a KeepAlive until there is something to tell, or to grant. Then rest parks it anew.
func (s *service) await(ctx context.Context, k *keepAlive, rest func() error) error {
	if !k.call.Waits() {
		return s.conclude(ctx, k)
	}
	k.call.Notify(s.park(ctx, true, func() (any, error) { return nil, rest() }))
	return frames.ErrParked
}

// conclude parks a KeepAlive whose answer is due until the mastership has been proved. Where there are very many sessions,
// those of thousands are due at once, and none of them takes a goroutine; except of clients that have been silent,
// which are waited for. A call that has ended takes no place in a proof.
func (s *service) conclude(ctx context.Context, k *keepAlive) error {
	finish := func() (any, error) { return s.finish(ctx, k) }
	switch {
	case ctx.Err() != nil:
		_, err := finish()
		return err
	case k.call.IsHeard():
		k.call.Prove(s.park(ctx, true, finish))
	default:
		s.park(ctx, false, finish)()
	}
	return frames.ErrParked
}

// tell sends the events that a client can have while its KeepAlive waits on. It reports false without
// any, so the KeepAlive must be finished.
func (s *service) tell(k *keepAlive, stream grpc.ServerStreamingServer[pb.KeepAliveReply]) (told bool, err error) {
	events := k.call.Tell()
	if len(events) == 0 {
		return false, nil
	}
	reply := &pb.KeepAliveReply{Epoch: uint64(k.master.Epoch()), More: true}
	for _, e := range events {
		reply.Events = append(reply.Events, eventOf(e))
	}
	if err := stream.Send(reply); err != nil {
		k.call.Abandon()
		return false, err
	}
	return true, nil
}

func (s *service) receive(ctx context.Context, q *pb.KeepAliveRequest) (*keepAlive, error) {
	return onMaster(s, opKeepAlive, "", func(m *master.Master) (*keepAlive, error) {
		who, err := s.callerOf(m, q.GetCaller())
		if err == nil {
			err = m.Sessions.CheckEpoch(who)
		}
		if err != nil {
			return nil, err
		}
		call, err := m.Sessions.Park(who, master.Receipt{Received: q.GetReceived(), Acknowledged: q.GetAcknowledged(), Grant: q.GetGrant()}, connectionOf(ctx))
		return &keepAlive{master: m, call: call}, err
	})
}

func (s *service) finish(ctx context.Context, k *keepAlive) (*pb.KeepAliveReply, error) {
	x, err := k.call.Finish(ctx)
	if err != nil {
		return nil, s.complete(k.master, opKeepAlive, &subject{}, err)
	}
	reply := &pb.KeepAliveReply{Epoch: uint64(k.master.Epoch()), ServersVersion: k.master.State().Roster.Version}
	if x.Grant != nil {
		reply.Grant = leaseOf(*x.Grant)
	}
	for _, e := range x.Events {
		reply.Events = append(reply.Events, eventOf(e))
	}
	return reply, nil
}

// RenewCache reads only what the master knows, and writes nothing.
func (s chubbyService) RenewCache(ctx context.Context, q *pb.RenewCacheRequest) (*pb.RenewCacheReply, error) {
	return inSession(s.service, "renew cache", &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.RenewCacheReply, error) {
		lease, err := m.Files.RenewCache(ctx, who.Session)
		return &pb.RenewCacheReply{LeaseNs: int64(lease)}, err
	})
}

func connectionOf(ctx context.Context) master.Connection {
	if conn := connOf(ctx); conn != nil {
		return conn
	}
	return nil
}

// eventOf encodes an event; Event.WireSize bounds its length.
func eventOf(e *master.Event) *pb.Event {
	return &pb.Event{
		Sequence:    e.Sequence,
		Kind:        pb.EventKind(e.Kind),
		Handle:      uint64(e.Handle),
		Path:        e.Path,
		Child:       e.Child,
		Generation:  uint64(e.Generation),
		Reason:      pb.EndReason(e.Reason),
		Explanation: e.Explanation,
		Recall:      e.Recall,
	}
}

// EndSession ends the caller's session, or, with a target, another client's.
func (s chubbyService) EndSession(ctx context.Context, q *pb.EndSessionRequest) (*pb.EndSessionReply, error) {
	const op = "end session"
	if q.GetTarget() != 0 {
		return s.endOther(ctx, op, q)
	}
	return onMaster(s.service, op, "", func(m *master.Master) (*pb.EndSessionReply, error) {
		who, err := s.callerOf(m, q.GetCaller())
		if err == nil {
			err = m.Sessions.CheckEpoch(who)
		}
		if err != nil {
			return nil, err
		}
		return &pb.EndSessionReply{}, m.Sessions.End(ctx, who.Session)
	})
}

func (s *service) endOther(ctx context.Context, op string, q *pb.EndSessionRequest) (*pb.EndSessionReply, error) {
	target := api.SessionID(q.GetTarget())
	return inSession(s, op, &subject{path: target.String()}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.EndSessionReply, error) {
		mutation, err := mutationOf(who.Session, q.GetMutation(), []byte("end"), number(&q.Target), []byte(q.GetReason()))
		if err == nil {
			err = checkReason(q.GetReason())
		}
		if err != nil {
			return nil, err
		}
		return &pb.EndSessionReply{}, m.Sessions.Terminate(ctx, raftfsm.Terminate{Mutation: mutation, Target: target, Why: q.GetReason()})
	})
}
