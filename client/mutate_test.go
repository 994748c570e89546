package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A mutation is sent with the same number until it has a definite answer, and
// so happens once, whatever comes between.
func TestSameNumberUntilAnswered(t *testing.T) {
	lose := func(_ context.Context, next func() (any, error)) (any, error) {
		_, _ = next() // done, and the answer lost
		return nil, chubbypb.Status(&api.Error{Code: api.Uncertain, Message: "leadership lost"})
	}
	for _, script := range []struct {
		name  string
		steps []verb
	}{
		{"at once", nil},
		{"not the master", []verb{fail(&api.Error{Code: api.NotMaster, Master: "b:1"}), fail(&api.Error{Code: api.NotMaster})}},
		{"cannot serve yet", []verb{fail(api.Unavailable), fail(api.Unavailable), fail(api.Unavailable)}},
		{"done, and the answer lost", []verb{lose, lose}},
		{"done, and then silence", []verb{mute, hang}},
		{"for an earlier epoch", []verb{fail(api.StaleEpoch)}},
		{"everything", []verb{hang, fail(api.Unavailable), mute, fail(&api.Error{Code: api.NotMaster, Master: "c:1"}), lose, fail(api.StaleEpoch)}},
	} {
		t.Run(script.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
				if err != nil {
					t.Fatal(err)
				}
				f.script(func(s seen) verb {
					if s.method == "SetContents" && s.nth <= len(script.steps) {
						return script.steps[s.nth-1]
					}
					return nil
				})
				if _, err := h.SetContents(t.Context(), []byte("one")); err != nil {
					t.Fatal(err)
				}
				calls := f.heard("SetContents")
				if len(calls) < len(script.steps)+1 {
					t.Errorf("%d attempts", len(calls))
				}
				for _, s := range calls {
					if s.number != calls[0].number {
						t.Errorf("an attempt with number %d, the first had %d", s.number, calls[0].number)
					}
				}
				if s := f.state(); s.writes != 1 || s.contents != "one" {
					t.Errorf("%d writes, contents %q", s.writes, s.contents)
				}
				if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
					t.Errorf("outstanding %v", open)
				}
				closeClient(t, c)
			})
		})
	}
}

// A connection that breaks under a call does not fail it.
func TestConnectionLost(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method == "SetContents" && s.nth == 1 {
				return func(ctx context.Context, next func() (any, error)) (any, error) {
					_, _ = next()
					f.cut("a:1")
					f.elect("c:1")
					<-ctx.Done()
					return nil, ctx.Err()
				}
			}
			return nil
		})
		began := time.Now()
		if _, err := h.SetContents(t.Context(), []byte("one")); err != nil || f.state().writes != 1 {
			t.Errorf("%v, %d writes", err, f.state().writes)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
		closeClient(t, c)
	})
}

// Definite refusals are not retried, and keep what they carry.
func TestRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method == "SetContents" {
				return fail(&api.Error{Code: api.GenerationMismatch, Current: 41, Replica: "a", Message: "too late"})
			}
			return nil
		})
		_, err = h.SetContents(t.Context(), nil, IfGeneration(40))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.GenerationMismatch || e.Current != 41 || e.Replica != "a" || e.Op != "write" || e.Path != "/ls/foo/x" {
			t.Errorf("%+v", e)
		}
		calls := f.heard("SetContents")
		if len(calls) != 1 || calls[0].request.(*chubbypb.SetContentsRequest).GetIfGeneration() != 40 {
			t.Errorf("%d attempts, %v", len(calls), calls)
		}
		closeClient(t, c)
	})
}

// A call that never reached anybody is not uncertain: nothing was done.
func TestNothingSent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.cut(addresses()...)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Cancelled) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		f.heal()
		if _, err := h.SetContents(t.Context(), nil); err != nil || len(f.heard("Cancel")) != 0 || f.state().writes != 1 {
			t.Errorf("%v, %d cancels, %d writes", err, len(f.heard("Cancel")), f.state().writes)
		}
		closeClient(t, c)
	})
}
