package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"pgregory.net/rapid"
)

// A call has one id in all of its attempts, and its error has it. Another call has another one, and so has another client.
func TestRequestIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.client(f.config()) // another client
		opened := f.heard("CreateSession")
		first, second := opened[0].request.(*chubbypb.CreateSessionRequest).GetRequest(), opened[1].request.(*chubbypb.CreateSessionRequest).GetRequest()
		if first == 0 || second == 0 || first == second {
			t.Errorf("sessions are opened with the requests %x and %x", first, second)
		}
		h := lockable(t, c, 0)
		notYet := fail(api.Errorf(api.Unavailable, "not yet"))
		f.inTurn("SetContents", notYet, notYet, fail(api.Errorf(api.GenerationMismatch, "too late")))
		told := map[string]bool{}
		for range 2 {
			_, err := h.SetContents(t.Context(), nil, IfGeneration(40))
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.GenerationMismatch || len(e.Request) != 16 || told[e.Request] {
				t.Errorf("%+v", e)
			}
			told[e.Request] = true
		}
		calls := f.heard("SetContents")
		if len(calls) != 4 {
			t.Fatalf("%d attempts, want 3 and 1", len(calls))
		}
		idOf := func(s seen) string {
			return fmt.Sprintf("%016x", s.request.(*chubbypb.SetContentsRequest).GetCaller().GetRequest())
		}
		for i, s := range calls {
			if id := idOf(s); !told[id] || i < 3 != (id == idOf(calls[0])) {
				t.Errorf("attempt %d has the request %s; the errors have %v", i, id, told)
			}
		}
	})
}

// However many wait for locks, there is room for what ends a wait.
func TestWaitsLeaveRoom(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		l := acquired(t, lockable(t, c, 0))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const waiters = api.MaxOutstanding + 50
		h := lockable(t, c, 0)
		done := make(chan error, waiters)
		for range waiters {
			go func() {
				_, err := h.Acquire(ctx, api.Exclusive)
				done <- err
			}()
		}
		synctest.Wait()
		if n := len(f.heard("Acquire")); n != 1+maxSessionWaits {
			t.Errorf("%d requests are in queues, want %d", n-1, maxSessionWaits)
		}
		wants(t, "a write beside them", second(h.SetContents(bounded(t, time.Second), nil)), nil)
		cancel()
		for range waiters {
			wants(t, "a wait that was given up", <-done, api.Cancelled)
		}
		noError(t, l.Release(t.Context()))
		time.Sleep(time.Second)
		synctest.Wait()
		if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 || len(c.numbers.waiting) != 0 {
			t.Errorf("outstanding %v, waiting %v", open, c.numbers.waiting)
		}
	})
}

// At most api.MaxOutstanding requests of a session are without an answer, those
// of the janitor included; further callers wait.
func TestOutstandingLimit(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		gate := make(chan struct{})
		f.on("SetContents", func(ctx context.Context, next func() (any, error)) (any, error) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return next()
		})
		const callers = api.MaxOutstanding + 50
		done := make(chan error, callers)
		for range callers {
			go func() { _, err := h.SetContents(t.Context(), nil); done <- err }()
		}
		synctest.Wait()
		if n := len(f.heard("SetContents")); n != maxOrdinary {
			t.Errorf("%d are out, want %d", n, maxOrdinary)
		}
		close(gate)
		for range callers {
			noError(t, <-done)
		}
		if n := f.state().writes; n != callers {
			t.Errorf("%d writes", n)
		}
	})
}

// The set of outstanding numbers agrees with a naive twin, in any order of
// beginning and finishing.
func TestNumbersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newRequestNumbers(make(chan struct{}, maxCellWaits))
		var last uint64
		var open []uint64
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if len(open) >= maxOrdinary {
					return
				}
				number, err := n.allocate(context.Background(), nil, classChange)
				if last++; err != nil || number != last {
					t.Fatalf("got %d, %v; want %d", number, err, last)
				}
				open = append(open, number)
			},
			"finish": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "i")
				n.finish(open[i])
				open = slices.Delete(open, i, i+1)
			},
			"": func(t *rapid.T) {
				m := n.wireMutation(7)
				if m.GetNumber() != 7 || m.GetHighestIssued() != last || !slices.Equal(m.GetOutstanding(), open) {
					t.Fatalf("got %v, want up to %d, %v", m, last, open)
				}
			},
		})
	})
}

// The mastership goes where it is wanted, and the caller is told where it went,
// also if the answer goes with the mastership.
func TestTransfer(t *testing.T) {
	for _, lost := range []struct {
		name string
		verb verb // of the first Transfer; nil lets the answer through
	}{
		{"answered", nil},
		{"without an answer", mute},
		{"deposed", func(_ context.Context, next func() (any, error)) (any, error) {
			_, _ = next()
			return fail(&api.Error{Code: api.NotMaster, Message: "deposed"})(t.Context(), nil)
		}},
		{"uncertain", func(_ context.Context, next func() (any, error)) (any, error) {
			_, _ = next()
			return fail(api.Errorf(api.Uncertain, "leadership was lost"))(t.Context(), nil)
		}},
	} {
		for to, want := range map[string]string{"": "b:1", "c:1": "c:1"} {
			inSession(t, func(t *testing.T, f *fake, c *Client) {
				f.onFirst("Transfer", lost.verb)
				master, err := c.Transfer(t.Context(), to)
				if n := len(f.heard("Transfer")); master != want || err != nil || n != 1 {
					t.Errorf("%s, to %q: %q, %v, asked %d times", lost.name, to, master, err, n)
				}
			})
		}
	}
}

// A master that was asked and is still there is not asked again in its epoch; of
// another one, which is not the one wanted, the same is wanted.
func TestTransferFails(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		wants(t, "to nobody", second(c.Transfer(t.Context(), "r9")), api.InvalidArgument)
		asked := len(f.heard("Transfer"))
		f.on("Transfer", hang)
		master, err := c.Transfer(t.Context(), "c:1")
		if n := len(f.heard("Transfer")) - asked; master != "" || !errors.Is(err, api.Uncertain) || n != 1 {
			t.Errorf("a master that does nothing: %q, %v, asked %d times", master, err, n)
		}
		ctx := bounded(t, time.Second)
		if _, err := c.Transfer(ctx, "c:1"); !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left before the answer: %v", err)
		}
		asked = len(f.heard("Transfer"))
		f.inTurn("Transfer", func(context.Context, func() (any, error)) (any, error) {
			f.elect("b:1") // a failure of its own
			return nil, chubbypb.Status(&api.Error{Code: api.NotMaster, Message: "deposed"})
		}, nil)
		master, err = c.Transfer(t.Context(), "c:1")
		if n := len(f.heard("Transfer")) - asked; master != "c:1" || err != nil || n < 2 {
			t.Errorf("another took over: %q, %v, asked %d times", master, err, n)
		}
	})
}

// Who follows a change of the replicas is told when it is complete, and when another operator takes it back, also if the next has
// begun by then.
func TestChangeIsSettled(t *testing.T) {
	replacing, removing := MemberChange{Add: "r4", Remove: "r1"}, MemberChange{Remove: "r1"}
	for _, row := range []struct {
		change MemberChange
		now    []Member
		done   bool
		back   string // what the error says
	}{
		{replacing, []Member{{ID: "r1"}, {ID: "r2"}, {ID: "r4", Phase: "joining"}}, false, ""},
		{replacing, []Member{{ID: "r1", Phase: "leaving"}, {ID: "r2"}, {ID: "r4"}}, false, ""},
		{replacing, []Member{{ID: "r2"}, {ID: "r4"}}, true, ""},
		{replacing, []Member{{ID: "r1"}, {ID: "r2"}}, false, "replica r1 stays"},
		{replacing, []Member{{ID: "r2"}}, false, "replica r4 has left"},
		{removing, []Member{{ID: "r1", Phase: "leaving"}, {ID: "r2"}}, false, ""},
		{removing, []Member{{ID: "r2", Phase: "leaving"}}, true, ""},
		{removing, []Member{{ID: "r1"}, {ID: "r2", Phase: "leaving"}}, false, "replica r1 stays"},
		{MemberChange{Add: "r4", Spare: true}, []Member{{ID: "r1"}, {ID: "r4", Phase: SpareMember}}, true, ""},
		{MemberChange{Keep: "r1"}, []Member{{ID: "r1"}}, true, ""},
		{MemberChange{Keep: "r1"}, []Member{{ID: "r2"}}, false, "replica r1 has left"},
	} {
		done, err := row.change.settled(row.now)
		if back := err != nil; done != row.done || back != (row.back != "") ||
			back && (!errors.Is(err, api.Cancelled) || !strings.Contains(err.Error(), "took the change back: "+row.back)) {
			t.Errorf("%+v with %+v: %t, %v", row.change, row.now, done, err)
		}
	}
}
