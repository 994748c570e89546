package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

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
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				f.script(func(s seen) verb {
					if s.method == "Transfer" && s.nth == 1 {
						return lost.verb
					}
					return nil
				})
				master, err := c.Transfer(t.Context(), to)
				if n := len(f.heard("Transfer")); master != want || err != nil || n != 1 {
					t.Errorf("%s, to %q: %q, %v, asked %d times", lost.name, to, master, err, n)
				}
				closeClient(t, c)
			})
		}
	}
}

// A master that was asked and is still there is not asked again in its epoch; of
// another one, which is not the one wanted, the same is wanted.
func TestTransferFails(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		if _, err := c.Transfer(t.Context(), "r9"); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("to nobody: %v", err)
		}
		asked := len(f.heard("Transfer"))
		f.script(func(s seen) verb {
			if s.method == "Transfer" {
				return hang
			}
			return nil
		})
		master, err := c.Transfer(t.Context(), "c:1")
		if n := len(f.heard("Transfer")) - asked; master != "" || !errors.Is(err, api.Uncertain) || n != 1 {
			t.Errorf("a master that does nothing: %q, %v, asked %d times", master, err, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Transfer(ctx, "c:1"); !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left before the answer: %v", err)
		}
		asked = len(f.heard("Transfer"))
		f.script(func(s seen) verb {
			if s.method == "Transfer" && s.nth == asked+1 {
				f.elect("b:1") // a failure of its own
				return fail(&api.Error{Code: api.NotMaster, Message: "deposed"})
			}
			return nil
		})
		master, err = c.Transfer(t.Context(), "c:1")
		if n := len(f.heard("Transfer")) - asked; master != "c:1" || err != nil || n < 2 {
			t.Errorf("another took over: %q, %v, asked %d times", master, err, n)
		}
		closeClient(t, c)
	})
}

// The history of a lock is told as the cell tells it, and says whether two held the lock at once.
func TestHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, err := Dial(t.Context(), f.config())
		if err != nil {
			t.Fatal(err)
		}
		for now, together := range map[uint64]bool{13: false, 12: true, 11: true, 10: true} {
			f.heldNow = now
			h, err := c.History(t.Context(), "/ls/foo/x")
			if err != nil || h.Path != "/ls/foo/x" || h.MoreHolders != 3 || len(h.Holdings) != 2 {
				t.Fatalf("%+v, %v", h, err)
			}
			want := api.Holding{
				Session: 7, Host: "h", Principal: "p", PID: 5, Reason: "r", FromUnix: 10, Mode: api.Exclusive,
				Generation: 11, Until: 12, ToUnix: 13, End: api.ByFailOver, Delay: time.Second,
			}
			if h.Holdings[0] != want || h.Holdings[1] != (api.Holding{Session: 8, Mode: api.Shared, Generation: api.Generation(now)}) {
				t.Errorf("%+v", h.Holdings)
			}
			if a, b, found := h.Overlap(); found != together || found && a.Generation+b.Generation != api.Generation(11+now) {
				t.Errorf("with token %d now, after one until 12: %v, %+v, %+v", now, found, a, b)
			}
		}
		_ = c.Close()
	})
}

// What a node's operations would wait for is told as the cell tells it.
func TestExplain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, err := Dial(t.Context(), f.config())
		if err != nil {
			t.Fatal(err)
		}
		x, err := c.Explain(t.Context(), "/ls/foo/x")
		if err != nil || x.Lock.Mode != api.Exclusive || len(x.Sentences) != 1 || len(x.Cachers) != 1 {
			t.Fatalf("%+v, %v", x, err)
		}
		if one := x.Cachers[0]; one.Session != 7 || one.Host != "h" || one.Waiting != time.Second || one.AtMost != time.Minute {
			t.Errorf("%+v", one)
		}
		_ = c.Close()
	})
}
