package cell

import (
	"context"
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
	"google.golang.org/grpc"
)

// lockRequest is what Acquire and TryAcquire have in common.
type lockRequest interface {
	GetCaller() *pb.Caller
	GetMutation() *pb.Mutation
	GetHandle() []byte
	GetMode() pb.LockMode
	GetReason() string
}

// claim decodes and validates a request for a lock.
func (s *service) claim(q lockRequest) (*master, raftfsm.Claim, handle, error) {
	m, who, h, err := s.onHandle(q.GetCaller(), q.GetHandle())
	if err != nil {
		return nil, raftfsm.Claim{}, h, err
	}
	mutation, err := s.mutation(who, q.GetMutation(), []byte("lock"), q.GetHandle(), []byte{byte(q.GetMode())}, []byte(q.GetReason()))
	mode := api.LockMode(q.GetMode())
	switch {
	case err != nil:
	case !mode.Valid():
		err = api.Errorf(api.InvalidArgument, "lock mode %d; want exclusive or shared", mode)
	case len(q.GetReason()) > api.MaxReason || !utf8.ValidString(q.GetReason()):
		err = api.Errorf(api.InvalidArgument, "the reason must be UTF-8 of at most %d bytes", api.MaxReason)
	}
	return m, raftfsm.Claim{Mutation: mutation, Handle: h.owner.Handle, Mode: mode, Delay: h.delay, Reason: q.GetReason(), Guards: h.guards()}, h, err
}

// lock answers a request for a lock; ask asks for it.
func (s *service) lock(ctx context.Context, op string, q lockRequest, ask func(*master, raftfsm.Claim, handle) (raftfsm.Answer, error)) (*pb.Granted, error) {
	m, claim, h, err := s.claim(q)
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	answer, err := m.lock(ctx, claim, h, func() (raftfsm.Answer, error) { return ask(m, claim, h) })
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	granted, err := m.grantOf(answer)
	return granted, s.fail(op, s.pathOf(h), err)
}

func (s *service) Acquire(q *pb.AcquireRequest, stream grpc.ServerStreamingServer[pb.AcquireReply]) error {
	const op = "acquire"
	granted, err := s.lock(stream.Context(), op, q, func(m *master, claim raftfsm.Claim, h handle) (raftfsm.Answer, error) {
		t := m.sign.parseTicket(q.GetTicket(), h.node, claim.Mutation.Session, claim.Mutation.Number)
		return m.acquire(stream.Context(), claim, h.node, t, func(q *pb.Queued) error {
			return stream.Send(&pb.AcquireReply{Answer: &pb.AcquireReply_Queued{Queued: q}})
		})
	})
	if err != nil {
		return err
	}
	return stream.Send(&pb.AcquireReply{Answer: &pb.AcquireReply_Granted{Granted: granted}})
}

func (s *service) TryAcquire(ctx context.Context, q *pb.TryAcquireRequest) (*pb.TryAcquireReply, error) {
	granted, err := s.lock(ctx, "try to acquire", q, func(m *master, claim raftfsm.Claim, h handle) (raftfsm.Answer, error) {
		return m.tryAcquire(ctx, claim, h.node)
	})
	return &pb.TryAcquireReply{Granted: granted}, err
}

func (s *service) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.ReleaseReply, error) {
	const op = "release"
	m, who, h, err := s.onHandle(q.GetCaller(), q.GetHandle())
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	generation := q.GetGeneration()
	mutation, err := s.mutation(who, q.GetMutation(), []byte(op), q.GetHandle(), number(&generation))
	if err == nil {
		err = m.release(ctx, mutation, h, api.Generation(generation))
	}
	return &pb.ReleaseReply{}, s.fail(op, s.pathOf(h), err)
}

// number writes an optional number for a request's hash.
func number(n *uint64) []byte {
	if n == nil {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, *n)
}

func (s *service) GetSequencer(ctx context.Context, q *pb.GetSequencerRequest) (*pb.GetSequencerReply, error) {
	const op = "get sequencer"
	m, _, h, err := s.onHandle(q.GetCaller(), q.GetHandle())
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	node, err := m.read(ctx, h, 0)
	if err == nil && !node.Holds(namespace.Owner{Session: h.owner.Session, Handle: h.owner.Handle}) {
		err = api.Errorf(api.NotHeld, "the handle does not hold the lock; acquire it first")
	}
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	granted, err := m.grantOf(raftfsm.Answer{Generation: node.Lock, Lock: node.Ref(), Mode: node.Mode})
	return &pb.GetSequencerReply{Sequencer: granted.GetSequencer()}, s.fail(op, s.pathOf(h), err)
}

// SetSequencer answers with a handle that carries the sequencer, so that every
// later master knows it too. An invalid one is refused at once.
func (s *service) SetSequencer(ctx context.Context, q *pb.SetSequencerRequest) (*pb.SetSequencerReply, error) {
	const op = "set sequencer"
	m, _, h, err := s.onHandle(q.GetCaller(), q.GetHandle())
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	parsed, err := sequencer.Parse(q.GetSequencer())
	if err == nil {
		err = m.checkSequencer(ctx, parsed)
	}
	if err == nil {
		err = m.use(h, 0, false)
	}
	if err == nil {
		h.guard, err = m.guard(parsed)
	}
	if err != nil {
		return nil, s.fail(op, s.pathOf(h), err)
	}
	return &pb.SetSequencerReply{Handle: m.sign.handle(h)}, nil
}

func (s *service) BreakLock(ctx context.Context, q *pb.BreakLockRequest) (*pb.BreakLockReply, error) {
	const op = "break the lock"
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, q.GetPath(), err)
	}
	who, err := m.admit(q.GetCaller())
	if err != nil {
		return nil, s.fail(op, q.GetPath(), err)
	}
	mutation, err := s.mutation(who, q.GetMutation(), []byte("break"), []byte(q.GetPath()), []byte(q.GetReason()), []byte{flag(q.GetNow())})
	if err == nil {
		err = validReason(q.GetReason())
	}
	if err != nil {
		return nil, s.fail(op, q.GetPath(), err)
	}
	node, err := s.nodeAt(ctx, m, q.GetPath())
	if err != nil {
		_, err = m.refuse(ctx, mutation, err) // it may have been there
	} else {
		err = m.breakLock(ctx, raftfsm.Revoke{Mutation: mutation, Lock: node, Why: q.GetReason(), Now: q.GetNow()})
	}
	return &pb.BreakLockReply{}, s.fail(op, q.GetPath(), err)
}

// nodeAt finds the node that an operator names.
func (s *service) nodeAt(ctx context.Context, m *master, text string) (namespace.Ref, error) {
	path, err := api.ParsePath(text)
	if err == nil {
		err = s.wrongCell(path.Cell())
	}
	if err == nil {
		_, err = m.fence.prove(ctx)
	}
	if err != nil {
		return namespace.Ref{}, err
	}
	node, ok := m.state().Tree.Get(path.Name())
	if !ok {
		return namespace.Ref{}, api.Errorf(api.NotFound, "there is no such node; see chubbyctl ls %s", path.Parent())
	}
	return node.Ref(), nil
}

func (s *service) CheckSequencer(ctx context.Context, q *pb.CheckSequencerRequest) (*pb.CheckSequencerReply, error) {
	const op = "check sequencer"
	m, err := s.master()
	if err == nil {
		err = s.wrongCell(q.GetCell())
	}
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	parsed, err := sequencer.Parse(q.GetSequencer())
	if err == nil {
		err = m.checkSequencer(ctx, parsed)
	}
	if api.CodeOf(err) == api.BadSequencer {
		return &pb.CheckSequencerReply{Explanation: explanation(err)}, nil
	}
	return &pb.CheckSequencerReply{Valid: err == nil}, s.fail(op, parsed.Path.String(), err)
}

// explanation returns the words of an error without its code.
func explanation(err error) string {
	if e := (*api.Error)(nil); errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

func (s *service) Cancel(ctx context.Context, q *pb.CancelRequest) (*pb.CancelReply, error) {
	const op = "cancel"
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	who, err := m.admit(q.GetCaller())
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	mutation, err := s.mutation(who, q.GetMutation())
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	answer, err := m.cancel(ctx, mutation)
	switch {
	case err != nil:
		return nil, s.fail(op, "", err)
	case answer.Code == api.Cancelled:
		return &pb.CancelReply{Cancelled: true}, nil
	case answer.Code == api.OK && answer.Generation != 0:
		granted, err := m.grantOf(answer)
		return &pb.CancelReply{Granted: granted}, s.fail(op, "", err)
	case answer.Code == api.OK:
		return &pb.CancelReply{}, nil
	}
	return nil, s.fail(op, "", m.explain(answer.Err()))
}

func (s *service) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksReply, error) {
	const op = "list locks"
	m, err := s.master()
	if err == nil {
		err = s.wrongCell(q.GetCell())
	}
	var prefix api.Name
	if err == nil && q.GetPrefix() != "" {
		var path api.Path
		if path, err = api.ParsePath(q.GetPrefix()); err == nil {
			prefix, err = path.Name(), s.wrongCell(path.Cell())
		}
	}
	if err != nil {
		return nil, s.fail(op, q.GetPrefix(), err)
	}
	reply, err := m.listLocks(ctx, prefix, q)
	return reply, s.fail(op, q.GetPrefix(), err)
}

func (s *service) ListSessions(ctx context.Context, q *pb.ListSessionsRequest) (*pb.ListSessionsReply, error) {
	const op = "list sessions"
	m, err := s.master()
	if err == nil {
		err = s.wrongCell(q.GetCell())
	}
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	reply, err := m.listSessions(ctx, q)
	return reply, s.fail(op, "", err)
}
