package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// fakeCell is what one address says of the cell.
type fakeCell struct {
	chubbypb.UnimplementedCellServer
	*fake
	address string
}

func (f fakeCell) Locate(context.Context, *chubbypb.LocateRequest) (*chubbypb.LocateReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &chubbypb.LocateReply{Cell: "foo", CellId: testCellID, Replica: f.address, Master: f.master, MasterAddress: f.master, Epoch: f.epoch}, nil
}

func (f fakeCell) Status(context.Context, *chubbypb.StatusRequest) (*chubbypb.StatusReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	role, applied := "replica", uint64(90)
	if f.address == f.master {
		role, applied = "master", 100
	}
	return &chubbypb.StatusReply{Cell: "foo", CellId: testCellID, Master: f.master[:1], Epoch: f.epoch, Sessions: uint64(len(f.sessions)),
		Replica: &chubbypb.ReplicaStatus{Id: f.address[:1], Role: role, Client: f.address, Applied: applied, Healthy: true, Version: "0.1.0"}}, nil
}

func (f fakeCell) Members(context.Context, *chubbypb.MembersRequest) (*chubbypb.MembersReply, error) {
	var list []*chubbypb.Member
	for _, address := range slices.Backward(addresses()) {
		list = append(list, &chubbypb.Member{Id: address[:1], Client: address, Voter: true})
	}
	return &chubbypb.MembersReply{Members: list}, nil
}

// state is what tests look at.
type state struct {
	writes   int
	contents string
	held     uint64 // generation of the lock; 0 when it is free
	handles  int    // of the only session
	acked    uint64
	told     uint64
}

func (f *fake) state() state {
	only := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := state{writes: f.writes, contents: string(f.contents)}
	if f.holder != nil {
		s.held = f.holder.gen
	}
	if only != nil {
		s.handles, s.acked, s.told = len(only.handles), only.acked, only.told
	}
	return s
}

// inSession runs a test in virtual time, on a cell, with a session.
func inSession(t *testing.T, test func(t *testing.T, f *fake, c *Client)) {
	t.Helper()
	inBubble(t, func(t *testing.T, f *fake) { test(t, f, f.client(f.config())) })
}

// runInBubble and runInSession run a part of a test, by its name.
func runInBubble(t *testing.T, name string, test func(t *testing.T, f *fake)) {
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

func runInSession(t *testing.T, name string, test func(t *testing.T, f *fake, c *Client)) {
	t.Run(name, func(t *testing.T) { inSession(t, test) })
}

// must ends the test if a call has failed, and noError reports that.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// bounded returns a context that ends after that time, or with the test.
func bounded(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// opened opens a node by its path, or below a directory.
func opened(t testing.TB, from interface {
	Open(ctx context.Context, path string, o OpenOptions) (*Handle, error)
}, path string, o OpenOptions) *Handle {
	t.Helper()
	return ok(from.Open(t.Context(), path, o))(t)
}

// acquired acquires the lock of a handle.
func acquired(t testing.TB, h *Handle) *Lock {
	t.Helper()
	return ok(h.Acquire(t.Context(), api.Exclusive))(t)
}

// settled checks that no request of a session is without an answer.
func settled(t testing.TB, c *Client) {
	t.Helper()
	if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
		t.Errorf("outstanding %v", open)
	}
}

// verb is what a hook has done with a call: nil is nothing.
type verb func(ctx context.Context, next func() (any, error)) (any, error)

func fail(err error) verb {
	return func(context.Context, func() (any, error)) (any, error) { return nil, chubbypb.Status(err) }
}

// hang never answers.
func hang(ctx context.Context, _ func() (any, error)) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lose does what is asked, and the answer is lost.
func lose(_ context.Context, next func() (any, error)) (any, error) {
	_, _ = next()
	return nil, chubbypb.Status(api.Errorf(api.Uncertain, "the answer was lost"))
}

// then does what is asked, and something else before the answer.
func then(act func()) verb {
	return func(_ context.Context, next func() (any, error)) (any, error) {
		reply, err := next()
		act()
		return reply, err
	}
}

// answering answers without asking the cell.
func answering(reply any) verb {
	return func(context.Context, func() (any, error)) (any, error) { return reply, nil }
}

// mute does what is asked and never answers.
func mute(ctx context.Context, next func() (any, error)) (any, error) {
	_, _ = next()
	<-ctx.Done()
	return nil, ctx.Err()
}

func after(d time.Duration) verb {
	return func(ctx context.Context, next func() (any, error)) (any, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return next()
	}
}

// when has the cell do that with each call for which cond holds: on with all of a method, onFirst with the first, and at with all that reach
// an address.
func (f *fake) when(cond func(s seen) bool, v verb) {
	f.script(func(s seen) verb {
		if !cond(s) {
			return nil
		}
		return v
	})
}

func (f *fake) on(method string, v verb) {
	f.when(func(s seen) bool { return s.method == method }, v)
}

func (f *fake) onFirst(method string, v verb) {
	f.when(func(s seen) bool { return s.method == method && s.nth == 1 }, v)
}

// inTurn has the cell do with the calls of a method from now on what the verbs say, each with one call, and the last with
// all others.
func (f *fake) inTurn(method string, verbs ...verb) {
	before := len(f.heard(method))
	f.script(func(s seen) verb {
		if s.method != method {
			return nil
		}
		return verbs[min(s.nth-before, len(verbs))-1]
	})
}

func (f *fake) at(address string, v verb) {
	f.when(func(s seen) bool { return s.address == address }, v)
}

// locked changes something of the cell.
func (f *fake) locked(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// refuse has the cell take no more connections; those that there are stay.
func (f *fake) refuse() {
	f.locked(func() {
		for _, address := range addresses() {
			f.down[address] = true
		}
	})
}

// wants checks the error of a call, or that it has no error (nil).
func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v; want %v", what, err, want)
	}
}

// ok returns what a call returns, and ends the test on its error.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
