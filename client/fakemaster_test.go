package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/protobuf/proto"
)

func (f *fake) CreateSession(_ context.Context, r *chubbypb.CreateSessionRequest) (*chubbypb.CreateSessionReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[string(r.GetNonce())]
	if s == nil {
		s = &fakeSession{
			id: uint64(len(f.sessions) + 1), lease: time.Duration(r.GetLeaseNs()), news: make(chan struct{}, 1),
			answers: map[uint64]fakeAnswer{}, finished: map[uint64]bool{}, handles: map[string]uint64{}, known: map[uint64]bool{},
		}
		f.sessions[string(r.GetNonce())] = s
	}
	return &chubbypb.CreateSessionReply{Session: r.GetNonce(), Id: s.id, Epoch: f.epoch, Grant: s.grant(0), CellId: testCellID,
		CacheLease: f.cacheLease != nil && r.GetCacheLease()}, nil
}

// RenewCache grants what the test says.
func (f *fake) RenewCache(context.Context, *chubbypb.RenewCacheRequest) (*chubbypb.RenewCacheReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &chubbypb.RenewCacheReply{LeaseNs: int64(*f.cacheLease)}, nil
}

func (s *fakeSession) grant(parked time.Duration) *chubbypb.Grant {
	s.number++
	s.granted = time.Now()
	s.end = s.granted.Add(s.lease)
	return &chubbypb.Grant{LeaseNs: int64(s.lease), ParkedNs: int64(parked), Number: s.number}
}

func (s *fakeSession) queue(e *chubbypb.Event) {
	s.sequence++
	e.Sequence = s.sequence
	s.events = append(s.events, e)
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// tell queues an event about a handle, if this master knows it.
func (f *fake) tell(s *fakeSession, handle uint64, e *chubbypb.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.tell(handle, e)
}

// tell queues an event of a handle; f.mu is held.
func (s *fakeSession) tell(handle uint64, e *chubbypb.Event) {
	if s.known[handle] {
		e.Handle = handle
		s.queue(e)
	}
}

// post queues an event as it is, also one without handle.
func (f *fake) post(s *fakeSession, kind chubbypb.EventKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.queue(&chubbypb.Event{Kind: kind})
}

// tellLoss tells a holder that its lock is taken away; f.mu is held.
func (f *fake) tellLoss(h *fakeHold, reason chubbypb.EndReason) {
	s := h.session
	s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOCK_LOST, Handle: s.handles[h.handle], Generation: h.gen,
		Reason: reason, Explanation: "bob: maintenance"})
	h.revoked = s.sequence
}

// doom tells a session that somebody else ended it; f.mu is held.
func (s *fakeSession) doom() {
	s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_SESSION_ENDED, Reason: chubbypb.EndReason_END_REASON_OPERATOR, Explanation: "ended by bob: too old"})
	s.doomed = s.sequence
}

// acknowledge frees what waited for it (decision 10); f.mu is held.
func (f *fake) acknowledge(s *fakeSession, sequence, received uint64) {
	if received > s.told || sequence > received {
		f.t.Errorf("%d acknowledged and %d received, and only %d told", sequence, received, s.told)
	}
	if sequence < s.acked || received < s.received {
		f.t.Errorf("%d acknowledged and %d received after %d and %d", sequence, received, s.acked, s.received)
	}
	s.acked, s.received = sequence, received
	s.events = slices.DeleteFunc(s.events, func(e *chubbypb.Event) bool { return e.GetSequence() <= s.received })
	if h := f.holder; h != nil && h.session == s && h.revoked > 0 && h.revoked <= s.acked {
		f.holder = nil
		f.evicted = append(f.evicted, time.Since(f.began))
	}
	if s.doomed > 0 && s.doomed <= s.acked {
		f.end(s)
	}
}

// end ends a session and frees what it held; f.mu is held.
func (f *fake) end(s *fakeSession) {
	s.ended = true
	if f.holder != nil && f.holder.session == s {
		f.holder = nil
		f.evicted = append(f.evicted, time.Since(f.began))
	}
}

func (f *fake) EndSession(_ context.Context, r *chubbypb.EndSessionRequest) (*chubbypb.EndSessionReply, error) {
	if r.GetTarget() == 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.end(f.sessions[string(r.GetCaller().GetSession())])
		return &chubbypb.EndSessionReply{}, nil
	}
	_, err := f.once(r.GetCaller(), r.GetMutation(), func(*fakeSession) (proto.Message, error) {
		for _, s := range f.sessions {
			if s.id == r.GetTarget() {
				s.doom()
				return &chubbypb.EndSessionReply{}, nil
			}
		}
		return nil, api.Errorf(api.NotFound, "there is no session %d", r.GetTarget())
	})
	return &chubbypb.EndSessionReply{}, err
}

// once answers a mutation, exactly once, and checks what stands in it.
func (f *fake) once(caller *chubbypb.Caller, m *chubbypb.Mutation, do func(s *fakeSession) (proto.Message, error)) (proto.Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[string(caller.GetSession())]
	n, open := m.GetNumber(), m.GetOutstanding()
	if !slices.Contains(open, n) || len(open) > api.MaxOutstanding || !slices.IsSorted(open) || open[len(open)-1] > m.GetHighestIssued() {
		f.t.Errorf("request %d has a bad set of outstanding numbers: up to %d, %v", n, m.GetHighestIssued(), open)
	}
	if s.finished[n] {
		return nil, chubbypb.Status(api.Errorf(api.InvalidArgument, "number %d is finished", n))
	}
	for i := uint64(1); i <= m.GetHighestIssued(); i++ {
		if !slices.Contains(open, i) {
			s.finished[i] = true
			delete(s.answers, i)
		}
	}
	a, ok := s.answers[n]
	if !ok {
		a.reply, a.err = do(s)
		s.answers[n] = a
	}
	return a.reply, chubbypb.Status(a.err)
}

func (f *fake) Open(_ context.Context, r *chubbypb.OpenRequest) (*chubbypb.OpenReply, error) {
	reply, err := f.once(r.GetCaller(), r.GetMutation(), func(s *fakeSession) (proto.Message, error) {
		token := fmt.Sprintf("h%d.%d", s.id, r.GetMutation().GetNumber())
		s.handles[token], s.known[r.GetMutation().GetNumber()] = r.GetMutation().GetNumber(), true
		stat := f.stat()
		stat.Path = r.GetPath()
		return &chubbypb.OpenReply{Handle: []byte(token), HandleId: r.GetMutation().GetNumber(), Created: !f.reusable, Stat: stat,
			Cacheable: f.reusable, Reusable: f.reusable}, nil
	})
	out, _ := reply.(*chubbypb.OpenReply)
	return out, err
}

func (f *fake) stat() *chubbypb.Stat {
	return &chubbypb.Stat{Path: "/ls/foo/x", Kind: chubbypb.Kind_KIND_FILE, Instance: 1, ContentGeneration: f.gen, Size: uint32(len(f.contents))}
}

func (f *fake) CloseHandle(_ context.Context, r *chubbypb.CloseHandleRequest) (*chubbypb.CloseHandleReply, error) {
	_, err := f.once(r.GetCaller(), r.GetMutation(), func(s *fakeSession) (proto.Message, error) {
		token := string(r.GetHandle())
		if _, ok := s.handles[token]; !ok {
			return nil, api.Errorf(api.HandleClosed, "no such handle")
		}
		delete(s.known, s.handles[token])
		delete(s.handles, token)
		if f.holder != nil && f.holder.session == s && f.holder.handle == token {
			f.holder = nil
		}
		return &chubbypb.CloseHandleReply{}, nil
	})
	return &chubbypb.CloseHandleReply{}, err
}

func (f *fake) GetStat(context.Context, *chubbypb.GetStatRequest) (*chubbypb.GetStatReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &chubbypb.GetStatReply{Stat: f.stat(), Cacheable: f.cacheable}, nil
}

func (f *fake) SetContents(_ context.Context, r *chubbypb.SetContentsRequest) (*chubbypb.SetContentsReply, error) {
	reply, err := f.once(r.GetCaller(), r.GetMutation(), func(*fakeSession) (proto.Message, error) {
		f.contents = r.GetContents()
		f.writes++
		f.gen++
		return &chubbypb.SetContentsReply{Stat: f.stat()}, nil
	})
	out, _ := reply.(*chubbypb.SetContentsReply)
	return out, err
}

// SetSequencer answers with a new token of the same handle.
func (f *fake) SetSequencer(_ context.Context, r *chubbypb.SetSequencerRequest) (*chubbypb.SetSequencerReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[string(r.GetCaller().GetSession())]
	token := string(r.GetHandle()) + "+"
	s.handles[token] = s.handles[string(r.GetHandle())]
	return &chubbypb.SetSequencerReply{Handle: []byte(token)}, nil
}

func (f *fake) SetQuota(_ context.Context, r *chubbypb.SetQuotaRequest) (*chubbypb.SetQuotaReply, error) {
	_, err := f.once(r.GetCaller(), r.GetMutation(), func(*fakeSession) (proto.Message, error) { return &chubbypb.SetQuotaReply{}, nil })
	return &chubbypb.SetQuotaReply{}, err
}

func (f *fake) SetACL(_ context.Context, r *chubbypb.SetACLRequest) (*chubbypb.SetACLReply, error) {
	_, err := f.once(r.GetCaller(), r.GetMutation(), func(*fakeSession) (proto.Message, error) { return &chubbypb.SetACLReply{}, nil })
	return &chubbypb.SetACLReply{Stat: f.stat()}, err
}

func (f *fake) Delete(_ context.Context, r *chubbypb.DeleteRequest) (*chubbypb.DeleteReply, error) {
	_, err := f.once(r.GetCaller(), r.GetMutation(), func(*fakeSession) (proto.Message, error) { return &chubbypb.DeleteReply{}, nil })
	return &chubbypb.DeleteReply{}, err
}

func (f *fake) CheckSequencer(_ context.Context, r *chubbypb.CheckSequencerRequest) (*chubbypb.CheckSequencerReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	valid := f.holder != nil && r.GetSequencer() == f.sequencer(f.holder.gen)
	return &chubbypb.CheckSequencerReply{Valid: valid, Explanation: "not the newest"}, nil
}

// Transfer elects another address, whose name is also its id here.
func (f *fake) Transfer(_ context.Context, r *chubbypb.TransferRequest) (*chubbypb.TransferReply, error) {
	to := r.GetTo()
	if to == "" {
		to = "b:1"
	}
	if !slices.Contains(addresses(), to) {
		return nil, chubbypb.Status(api.Errorf(api.InvalidArgument, "there is no replica %s", to))
	}
	f.elect(to)
	return &chubbypb.TransferReply{Master: to}, nil
}
