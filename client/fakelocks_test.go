package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func (f *fake) grantLock(s *fakeSession, handle string) (*chubbypb.Granted, error) {
	switch {
	case f.holder != nil:
		return nil, &api.Error{Code: api.LockHeld, Message: "held", Holders: []api.Holder{{Session: api.SessionID(f.holder.session.id)}}}
	case f.delayed > 0:
		return nil, &api.Error{Code: api.LockDelayed, Message: "delayed", Remaining: f.delayed}
	}
	f.gen++
	f.holder = &fakeHold{session: s, handle: handle, gen: f.gen}
	return &chubbypb.Granted{Sequencer: f.sequencer(f.gen), Generation: f.gen}, nil
}

func (f *fake) sequencer(gen uint64) string {
	return sequencer.Sequencer{
		Cell: testCellID, Path: api.MustParsePath("/ls/foo/x"), Mode: api.Exclusive, Generation: api.Generation(gen),
	}.String()
}

// parsedSequencer is sequencer, as a client has it.
func (f *fake) parsedSequencer(gen uint64) sequencer.Sequencer {
	seq, err := sequencer.Parse(f.sequencer(gen))
	if err != nil {
		f.t.Error(err)
	}
	return seq
}

func (f *fake) TryAcquire(_ context.Context, r *chubbypb.TryAcquireRequest) (*chubbypb.TryAcquireReply, error) {
	reply, err := f.once(r.GetCaller(), r.GetMutation(), func(s *fakeSession) (proto.Message, error) {
		g, err := f.grantLock(s, string(r.GetHandle()))
		if err != nil {
			return nil, err
		}
		return g, nil
	})
	g, _ := reply.(*chubbypb.Granted)
	return &chubbypb.TryAcquireReply{Granted: g}, err
}

// Acquire polls, in virtual time, for the lock to be free.
func (f *fake) Acquire(r *chubbypb.AcquireRequest, stream grpc.ServerStreamingServer[chubbypb.AcquireReply]) error {
	f.mu.Lock()
	turn := f.turn
	f.mu.Unlock()
	for waiting := false; ; waiting = true {
		held := errors.New("not now")
		reply, err := f.once(r.GetCaller(), r.GetMutation(), func(s *fakeSession) (proto.Message, error) {
			g, err := f.grantLock(s, string(r.GetHandle()))
			if err != nil {
				return nil, held
			}
			return g, nil
		})
		if g, ok := reply.(*chubbypb.Granted); ok && err == nil {
			err = stream.Send(&chubbypb.AcquireReply{Answer: &chubbypb.AcquireReply_Granted{Granted: g}})
			f.mu.Lock()
			lingers := f.lingers
			f.mu.Unlock()
			if lingers {
				<-stream.Context().Done()
			}
			return err
		}
		f.mu.Lock()
		s := f.sessions[string(r.GetCaller().GetSession())]
		a := s.answers[r.GetMutation().GetNumber()]
		if errors.Is(a.err, held) {
			delete(s.answers, r.GetMutation().GetNumber()) // it waits
		}
		ticket := r.GetTicket()
		if !waiting && len(ticket) == 0 {
			f.tickets++
			ticket = fmt.Appendf(nil, "ticket %d", f.tickets)
		}
		f.mu.Unlock()
		if !errors.Is(a.err, held) {
			return err
		}
		if !waiting {
			q := &chubbypb.Queued{Ticket: ticket, Place: 1, Waiting: 1, Holders: []*chubbypb.Party{{Session: 77, Principal: "somebody"}}}
			if err := stream.Send(&chubbypb.AcquireReply{Answer: &chubbypb.AcquireReply_Queued{Queued: q}}); err != nil {
				return err
			}
		}
		for asked := false; !asked || f.stillWaits(r); asked = true {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-turn:
				return chubbypb.Status(&api.Error{Code: api.NotMaster, Message: "deposed"})
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	}
}

// stillWaits reports whether there is no lock for a request, and no answer that says so. It costs
// little, where many wait.
func (f *fake) stillWaits(r *chubbypb.AcquireRequest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, n := f.sessions[string(r.GetCaller().GetSession())], r.GetMutation().GetNumber()
	_, answered := s.answers[n]
	return (f.holder != nil || f.delayed > 0) && !answered && !s.finished[n]
}

func (f *fake) Release(_ context.Context, r *chubbypb.ReleaseRequest) (*chubbypb.ReleaseReply, error) {
	_, err := f.once(r.GetCaller(), r.GetMutation(), func(s *fakeSession) (proto.Message, error) {
		if h := f.holder; h == nil || h.session != s || h.handle != string(r.GetHandle()) || h.gen != r.GetGeneration() {
			return nil, api.Errorf(api.NotHeld, "not held")
		}
		f.holder = nil
		return &chubbypb.ReleaseReply{}, nil
	})
	return &chubbypb.ReleaseReply{}, err
}

func (f *fake) GetSequencer(_ context.Context, r *chubbypb.GetSequencerRequest) (*chubbypb.GetSequencerReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holder == nil || f.holder.handle != string(r.GetHandle()) || f.holder.revoked > 0 {
		return nil, chubbypb.Status(api.Errorf(api.NotHeld, "not held"))
	}
	return &chubbypb.GetSequencerReply{Sequencer: f.sequencer(f.holder.gen)}, nil
}

var errCancelled = api.Errorf(api.Cancelled, "withdrawn")

func (f *fake) Cancel(_ context.Context, r *chubbypb.CancelRequest) (*chubbypb.CancelReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, n := f.sessions[string(r.GetCaller().GetSession())], r.GetMutation().GetNumber()
	if !slices.Contains(r.GetMutation().GetOutstanding(), n) {
		f.t.Errorf("Cancel of %d, which is not outstanding", n)
	}
	a, ok := s.answers[n]
	if !ok {
		s.answers[n] = fakeAnswer{err: errCancelled}
		return &chubbypb.CancelReply{Cancelled: true}, nil
	}
	if errors.Is(a.err, api.Cancelled) {
		return &chubbypb.CancelReply{Cancelled: true}, nil
	}
	g, _ := a.reply.(*chubbypb.Granted)
	return &chubbypb.CancelReply{Granted: g}, nil
}

// serveKeepAlives serves a KeepAlive; tests see it as one with one reply.
func (f *fake) serveKeepAlives(address string, s grpc.ServerStream) error {
	if f.single.Load() {
		return status.Error(codes.Unimplemented, "unknown method KeepAlives")
	}
	req := &chubbypb.KeepAliveRequest{}
	if err := s.RecvMsg(req); err != nil {
		return err
	}
	reply, err := f.through(s.Context(), address, chubbypb.Chubby_KeepAlive_FullMethodName, req, func() (any, error) {
		if err := f.office(address, chubbypb.Chubby_KeepAlive_FullMethodName, req); err != nil {
			return nil, chubbypb.Status(err)
		}
		return f.keepAlive(s.Context(), req, s)
	})
	if err != nil {
		return err
	}
	return s.SendMsg(reply)
}

func (f *fake) KeepAlive(ctx context.Context, r *chubbypb.KeepAliveRequest) (*chubbypb.KeepAliveReply, error) {
	return f.keepAlive(ctx, r, nil)
}

// tellAside tells of events if none needs an acknowledgement; f.mu is held.
func (f *fake) tellAside(s *fakeSession, after uint64, aside grpc.ServerStream) bool {
	reply := &chubbypb.KeepAliveReply{Epoch: f.epoch, More: true}
	for _, e := range s.events {
		if kind := api.EventKind(e.GetKind()); !kind.Subscribable() || kind == api.EventConflictingLock {
			return false
		}
		if e.GetSequence() > after {
			reply.Events = append(reply.Events, e)
		}
	}
	s.told = s.sequence
	return aside.SendMsg(reply) == nil
}

func (f *fake) keepAlive(ctx context.Context, r *chubbypb.KeepAliveRequest, aside grpc.ServerStream) (*chubbypb.KeepAliveReply, error) {
	f.mu.Lock()
	s := f.sessions[string(r.GetCaller().GetSession())]
	begun, turn, epoch := time.Now(), f.turn, f.epoch
	if s.parked++; s.parked > 1 {
		f.t.Errorf("%v: two KeepAlives in flight", time.Since(f.began))
	}
	ready := r.GetCaller().GetEpoch() != f.epoch
	if !ready { // what was heard in another epoch says nothing
		f.acknowledge(s, r.GetAcknowledged(), r.GetReceived())
		ready = len(s.events) > 0 || s.ended || r.GetGrant() < s.number // the newest was lost
	}
	wait := session.Due(s.lease) - time.Since(s.granted)
	heard := s.received
	if s.owed > s.acked {
		wait = min(session.Due(s.lease), time.Until(s.end))
	}
	f.mu.Unlock()
	defer func() {
		f.locked(func() { s.parked-- })
	}()
	for !ready {
		select {
		case <-time.After(wait):
			ready = true
		case <-s.news:
			f.mu.Lock()
			told := aside != nil && f.tellAside(s, heard, aside)
			if told {
				heard, wait = s.told, max(0, session.Due(s.lease)-time.Since(s.granted))
			}
			ready = len(s.events) > 0 && !told
			f.mu.Unlock()
		case <-turn:
			return nil, chubbypb.Status(&api.Error{Code: api.NotMaster, Message: "deposed"})
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.ended {
		return nil, chubbypb.Status(api.Errorf(api.SessionExpired, "ended"))
	}
	if f.epoch != epoch {
		return nil, chubbypb.Status(&api.Error{Code: api.NotMaster, Message: "deposed"})
	}
	reply := &chubbypb.KeepAliveReply{Epoch: f.epoch, Events: slices.DeleteFunc(slices.Clone(s.events), func(e *chubbypb.Event) bool { return e.GetSequence() <= heard })}
	if s.owed == s.acked && s.doomed == 0 {
		reply.Grant = s.grant(time.Since(begun))
	}
	s.told, s.owed = s.sequence, s.sequence
	return reply, nil
}

// framed intercepts the calls that come in frames as those over gRPC.
func (f *fake) framed(address string) func(*frames.Method, grpc.ServerStream) (any, error) {
	return func(m *frames.Method, stream grpc.ServerStream) (any, error) {
		if m.Unary != nil {
			return m.Handle(stream, f.unary(address))
		}
		return nil, f.stream(address)(m.Impl, stream, &grpc.StreamServerInfo{FullMethod: m.Name, IsServerStream: true}, m.Stream)
	}
}
