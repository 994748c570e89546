package master

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// congested runs a function while the proposer accepts nothing.
func (s *soloMaster) congested(do func()) {
	set := func(why error) {
		s.epoch.proposer.mu.Lock()
		defer s.epoch.proposer.mu.Unlock()
		s.epoch.proposer.closed = why
	}
	set(api.Errorf(api.Unavailable, "too much waits"))
	do()
	set(nil)
}

func (c *soloClient) claim(h Handle, mode api.LockMode) raftfsm.Claim {
	return raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: mode}
}

// requestFor returns a request for a lock. Its caller does not look at its place in the queue.
func requestFor(claim raftfsm.Claim, h Handle) AcquireRequest {
	return AcquireRequest{Claim: claim, Handle: h, Queued: func(Queued) error { return nil }}
}

func (r AcquireRequest) quietIf(quiet bool) AcquireRequest {
	r.Quiet = quiet
	return r
}

func (r AcquireRequest) detectIf(detect bool) AcquireRequest {
	r.Detect = detect
	return r
}

func (c *soloClient) try(t *testing.T, h Handle, mode api.LockMode) raftfsm.Answer {
	t.Helper()
	claim := c.claim(h, mode)
	got, err := c.m.Locks.TryAcquire(t.Context(), requestFor(claim, h))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wait asks for a lock and waits in its queue; the answer arrives in the channel.
func (c *soloClient) wait(ctx context.Context, h Handle, claim raftfsm.Claim) <-chan lockAnswer {
	return c.waits(ctx, requestFor(claim, h))
}

func (c *soloClient) waits(ctx context.Context, r AcquireRequest) <-chan lockAnswer {
	done := make(chan lockAnswer, 1)
	go func() {
		a, err := c.m.Locks.Acquire(ctx, r)
		done <- lockAnswer{a, err}
	}()
	synctest.Wait()
	return done
}

type lockAnswer struct {
	raftfsm.Answer
	err error
}

// answered returns what is in the channel by now.
func answered(t *testing.T, done <-chan lockAnswer) lockAnswer {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case a := <-done:
		return a
	default:
		t.Fatal("no answer")
		return lockAnswer{}
	}
}

// lockers returns three clients, kept alive, that have the same file open.
func lockers(t *testing.T, m *soloMaster) (clients []*soloClient, handles []Handle) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for i := range byte(3) {
		c := m.client(t, i+1)
		go c.keep(ctx)
		clients, handles = append(clients, c), append(handles, c.open(t, "/ls/local/f", api.MayCreate).Handle)
	}
	return clients, handles
}

func (s *soloMaster) holders() []namespace.Holder {
	node, _ := s.epoch.state().Tree.Get("/f")
	return node.Holders
}
