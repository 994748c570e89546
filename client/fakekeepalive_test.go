package client

import (
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
		f.mu.Lock()
		s.parked--
		f.mu.Unlock()
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
			return m.Call(stream, f.unary(address))
		}
		return nil, f.stream(address)(m.Impl, stream, &grpc.StreamServerInfo{FullMethod: m.Name, IsServerStream: true}, m.Stream)
	}
}
