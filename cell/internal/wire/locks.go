package wire

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
	"google.golang.org/grpc"
)

type lockRequest interface {
	handleRequest
	GetMutation() *pb.Mutation
	GetMode() pb.LockMode
	GetReason() string
	GetOwner() string
	GetQuiet() bool
}

// acquireOf decodes and checks what both requests for a lock have in common.
func acquireOf(q lockRequest, h master.Handle) (master.AcquireRequest, error) {
	parts := [][]byte{[]byte("lock"), q.GetHandle(), {byte(q.GetMode())}, []byte(q.GetReason())}
	if q.GetOwner() != "" { // else the hash equals that of versions without owners
		parts = append(parts, []byte(q.GetOwner()))
	}
	mutation, err := mutationOf(h.Owner.Session, q.GetMutation(), parts...)
	mode := api.LockMode(q.GetMode())
	switch {
	case err != nil:
	case !mode.Valid():
		err = api.Errorf(api.InvalidArgument, "lock mode %d; want exclusive or shared", mode)
	case len(q.GetReason()) > api.MaxReason || !utf8.ValidString(q.GetReason()):
		err = api.Errorf(api.InvalidArgument, "the reason must be UTF-8 of at most %d bytes", api.MaxReason)
	case len(q.GetOwner()) > api.MaxOwner || !utf8.ValidString(q.GetOwner()):
		err = api.Errorf(api.InvalidArgument, "the owner must be UTF-8 of at most %d bytes", api.MaxOwner)
	}
	return master.AcquireRequest{Handle: h, LockRequest: master.LockRequest{Quiet: q.GetQuiet(), Claim: raftfsm.Claim{
		Mutation: mutation, Handle: h.Owner.Handle, Mode: mode, Delay: h.Delay, Reason: q.GetReason(), DeclaredOwner: q.GetOwner(),
		Preconditions: h.Preconditions(),
	}}}, err
}

// askForLock serves a request for a lock; ask passes it to the master.
func (s *service) askForLock(op string, q lockRequest, ask func(*master.Master, master.AcquireRequest) (raftfsm.Answer, error)) (*pb.Granted, error) {
	return onHandle(s, op, q, func(m *master.Master, h master.Handle) (*pb.Granted, error) {
		r, err := acquireOf(q, h)
		if err != nil {
			return nil, err
		}
		answer, err := ask(m, r)
		if err != nil {
			return nil, err
		}
		return grantOf(m, answer)
	})
}

func grantOf(m *master.Master, a raftfsm.Answer) (*pb.Granted, error) {
	seq, err := m.Locks.SequencerOf(a)
	if err != nil {
		return nil, err
	}
	granted := &pb.Granted{Generation: uint64(a.Generation)}
	if seq.Proof != (sequencer.Proof{}) {
		granted.ProvedSequencer = seq.String()
		seq.Proof = sequencer.Proof{} // clients of v0.1.0 cannot parse a proof
	}
	granted.Sequencer = seq.String()
	return granted, nil
}

func (s chubbyService) Acquire(q *pb.AcquireRequest, stream grpc.ServerStreamingServer[pb.AcquireReply]) error {
	granted, err := s.askForLock("acquire", q, func(m *master.Master, r master.AcquireRequest) (raftfsm.Answer, error) {
		tokens, lock, by := s.signerOf(m), r.Handle.Node, r.Claim.Mutation
		r.Ticket = tokens.parseTicket(q.GetTicket(), lock, by.Session, by.Number)
		r.Detects, r.Waited = q.GetDetectDeadlock(), time.Duration(q.GetWaitedNs())
		r.Queued = func(now master.Queued) error {
			return stream.Send(&pb.AcquireReply{Answer: &pb.AcquireReply_Queued{Queued: &pb.Queued{
				Ticket:      tokens.ticket(now.Ticket, lock, by.Session, by.Number),
				Place:       uint32(now.Place),
				Waiting:     uint32(now.Waiting),
				Holders:     pb.Parties(now.Holders),
				MoreHolders: uint32(now.MoreHolders),
				DelayedNs:   int64(now.Delayed),
				EstimateNs:  int64(now.Estimate),
			}}})
		}
		return m.Locks.Acquire(stream.Context(), r)
	})
	if err != nil {
		return err
	}
	return stream.Send(&pb.AcquireReply{Answer: &pb.AcquireReply_Granted{Granted: granted}})
}

func (s chubbyService) TryAcquire(ctx context.Context, q *pb.TryAcquireRequest) (*pb.TryAcquireReply, error) {
	granted, err := s.askForLock("try to acquire", q, func(m *master.Master, r master.AcquireRequest) (raftfsm.Answer, error) {
		return m.Locks.TryAcquire(ctx, r)
	})
	return &pb.TryAcquireReply{Granted: granted}, err
}

func (s chubbyService) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.ReleaseReply, error) {
	const op = "release"
	return onHandle(s.service, op, q, func(m *master.Master, h master.Handle) (*pb.ReleaseReply, error) {
		generation := q.GetGeneration()
		mutation, err := mutationOf(h.Owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), number(&generation))
		if err != nil {
			return nil, err
		}
		m.Locks.NoteReading(h, api.Generation(generation), q.GetSequencerUnread())
		return &pb.ReleaseReply{}, m.Locks.Release(ctx, mutation, h, api.Generation(generation))
	})
}

func (s chubbyService) GetSequencer(ctx context.Context, q *pb.GetSequencerRequest) (*pb.GetSequencerReply, error) {
	return onHandle(s.service, "get sequencer", q, func(m *master.Master, h master.Handle) (*pb.GetSequencerReply, error) {
		node, err := m.Files.Read(ctx, h, 0)
		if err != nil {
			return nil, err
		}
		if !node.Holds(h.Owner) {
			return nil, api.Errorf(api.NotHeld, "the handle does not hold the lock; acquire it first")
		}
		granted, err := grantOf(m, raftfsm.Answer{Generation: node.Lock, Lock: node.Ref(), Mode: node.Mode})
		return &pb.GetSequencerReply{Sequencer: granted.GetSequencer(), ProvedSequencer: granted.GetProvedSequencer()}, err
	})
}

// SetSequencer answers with a handle that carries the sequencer, so that every later master knows it. It
// rejects an invalid one immediately.
func (s chubbyService) SetSequencer(ctx context.Context, q *pb.SetSequencerRequest) (*pb.SetSequencerReply, error) {
	return onHandle(s.service, "set sequencer", q, func(m *master.Master, h master.Handle) (*pb.SetSequencerReply, error) {
		seq, err := sequencer.Parse(q.GetSequencer())
		if err != nil {
			return nil, err
		}
		if err := m.Locks.CheckSequencer(ctx, h.Owner.Session, seq); err != nil {
			return nil, err
		}
		if err := m.Files.Use(h, 0, false); err != nil {
			return nil, err
		}
		h.Precondition, err = m.Locks.Precondition(h.Owner.Session, seq)
		return &pb.SetSequencerReply{Handle: s.signerOf(m).handle(h)}, err
	})
}

func (s chubbyService) CheckSequencer(ctx context.Context, q *pb.CheckSequencerRequest) (*pb.CheckSequencerReply, error) {
	about := &subject{}
	return serve(s.service, "check sequencer", about, func(m *master.Master) (*pb.CheckSequencerReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		seq, err := sequencer.Parse(q.GetSequencer())
		if err == nil {
			err = m.Locks.CheckSequencer(ctx, 0, seq)
		}
		if api.CodeOf(err) == api.BadSequencer {
			return &pb.CheckSequencerReply{Explanation: explanation(err)}, nil
		}
		about.path = seq.Path.String()
		return &pb.CheckSequencerReply{Valid: true}, err
	})
}

func explanation(err error) string {
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

func (s chubbyService) BreakLock(ctx context.Context, q *pb.BreakLockRequest) (*pb.BreakLockReply, error) {
	about := &subject{path: q.GetPath()}
	return inSession(s.service, "break the lock", about, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.BreakLockReply, error) {
		mutation, err := mutationOf(who.Session, q.GetMutation(), []byte("break"), []byte(q.GetPath()), []byte(q.GetReason()), []byte{flag(q.GetNow())})
		if err == nil {
			err = checkReason(q.GetReason())
		}
		if err != nil {
			return nil, err
		}
		path, err := s.pathOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		about.named = &master.Named{By: who.Session, Path: path}
		node, err := m.Inspector.NodeAt(ctx, path)
		if err != nil {
			_, err = m.Files.Refuse(ctx, mutation, err) // the command may have been done already
			return &pb.BreakLockReply{}, err
		}
		return &pb.BreakLockReply{}, m.Locks.Break(ctx, raftfsm.Revoke{Mutation: mutation, Lock: node, Why: q.GetReason(), Now: q.GetNow()})
	})
}

func (s chubbyService) Cancel(ctx context.Context, q *pb.CancelRequest) (*pb.CancelReply, error) {
	return inSession(s.service, "cancel", &subject{}, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.CancelReply, error) {
		mutation, err := mutationOf(who.Session, q.GetMutation())
		if err != nil {
			return nil, err
		}
		answer, err := m.Locks.Cancel(ctx, mutation)
		switch {
		case err != nil:
			return nil, err
		case answer.Code() == api.Cancelled:
			return &pb.CancelReply{Cancelled: true}, nil
		case answer.Code() == api.OK && answer.Generation != 0:
			granted, err := grantOf(m, answer)
			return &pb.CancelReply{Granted: granted}, err
		}
		return &pb.CancelReply{}, answer.Err()
	})
}
