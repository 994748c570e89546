package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"pgregory.net/rapid"
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

// A mutation whose caller leaves is reported as Uncertain, is settled through
// Cancel, and no later mutation is sent before: it could not take effect after
// one that was made later.
func TestAbandoned(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			switch {
			case s.method == "SetContents" && s.nth == 1:
				return func(_ context.Context, next func() (any, error)) (any, error) {
					time.Sleep(3 * time.Second) // it is on its way for long
					return next()
				}
			case s.method == "Cancel" && s.nth <= 2:
				return fail(api.Unavailable)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = h.SetContents(ctx, []byte("old"))
		if !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("abandoned: %v", err)
		}
		if _, err := h.SetContents(t.Context(), []byte("new")); err != nil {
			t.Error(err)
		}
		cancels, writes := f.heard("Cancel"), f.heard("SetContents")
		if len(cancels) != 3 || len(writes) != 2 || writes[1].at < cancels[2].at {
			t.Errorf("cancels %v, writes %v", cancels, writes)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := f.state(); s.contents != "new" || s.writes != 1 {
			t.Errorf("contents %q after %d writes", s.contents, s.writes)
		}
		if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
			t.Errorf("outstanding %v", open)
		}
		closeClient(t, c)
	})
}

// A broken connection says nothing of what had been sent over it.
func TestBrokenAndAbandoned(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method == "SetContents" {
				return func(_ context.Context, next func() (any, error)) (any, error) {
					reply, err := next()
					f.cut(addresses()...)
					return reply, err
				}
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		f.heal()
		time.Sleep(2 * time.Second)
		if n, open := len(f.heard("Cancel")), c.numbers.wireMutation(0).GetOutstanding(); n != 1 || len(open) != 0 {
			t.Errorf("%d cancels, outstanding %v", n, open)
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

// An Open that is left after it was done leaves no handle behind.
func TestAbandonedOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.script(func(s seen) verb {
			if s.method == "Open" && s.nth == 1 {
				return mute
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Open(ctx, "/ls/foo/x", OpenOptions{Read: true, Create: File}); !errors.Is(err, api.Uncertain) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := f.state(); s.handles != 0 || len(f.heard("Close")) != 1 || len(c.handles.byID) != 0 {
			t.Errorf("handles at the cell %v, here %v", s.handles, c.handles.byID)
		}
		if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
			t.Errorf("outstanding %v", open)
		}
		closeClient(t, c)
	})
}

// Close and Release are carried through although their callers left.
func TestAbandonedCloseAndRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if (s.method == "Close" || s.method == "Release") && s.nth == 1 {
				return hang
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, api.Uncertain) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(time.Second)
		if f.state().held != 0 {
			t.Errorf("the lock is still held")
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, api.Uncertain) {
			t.Errorf("Close: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := f.state(); s.handles != 0 || len(f.heard("Cancel")) != 0 {
			t.Errorf("handles %v, cancels %v", s.handles, f.heard("Cancel"))
		}
		closeClient(t, c)
	})
}

// Close and Release are carried through also if their callers left before they
// could be sent, as the cell could not be reached: at a deadline, or cancelled
// before the call.
func TestUnsentCloseAndRelease(t *testing.T) {
	for name, cancelled := range map[string]bool{"deadline": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := lockable(t, c, 0)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
				f.cut(addresses()...)
				time.Sleep(time.Second)
				leave := func(what string, f func(context.Context) error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if cancelled {
						cancel()
					}
					if err := f(ctx); !errors.Is(err, api.Uncertain) {
						t.Errorf("%s: %v", what, err)
					}
				}
				leave("Release", l.Release)
				f.heal()
				bound, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				again, err := h.Acquire(bound, api.Exclusive) // not before the first is released
				if err != nil || again.Token() <= l.Token() || f.state().held != again.Token() {
					t.Fatalf("again: %v; held %d", err, f.state().held)
				}
				f.cut(addresses()...)
				time.Sleep(time.Second)
				leave("Close", h.Close)
				f.heal()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if s := f.state(); s.held != 0 || s.handles != 0 {
					t.Errorf("held %d, handles %d", s.held, s.handles)
				}
				if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
					t.Errorf("outstanding %v", open)
				}
				closeClient(t, c)
			})
		})
	}
}

// However many wait for locks, there is room for what ends a wait.
func TestWaitsLeaveRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		l, err := lockable(t, c, 0).Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
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
		bound, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := h.SetContents(bound, nil); err != nil {
			t.Errorf("a write beside them: %v", err)
		}
		cancel()
		for range waiters {
			if err := <-done; !errors.Is(err, api.Cancelled) {
				t.Errorf("a wait that was given up: %v", err)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 || len(c.numbers.waiting) != 0 {
			t.Errorf("outstanding %v, waiting %v", open, c.numbers.waiting)
		}
		closeClient(t, c)
	})
}

// At most api.MaxOutstanding requests of a session are without an answer, those
// of the janitor included; further callers wait.
func TestOutstandingLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		f.script(func(s seen) verb {
			if s.method == "SetContents" {
				return func(ctx context.Context, next func() (any, error)) (any, error) {
					select {
					case <-gate:
					case <-ctx.Done():
					}
					return next()
				}
			}
			return nil
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
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := f.state().writes; n != callers {
			t.Errorf("%d writes", n)
		}
		closeClient(t, c)
	})
}

// The set of outstanding numbers agrees with a naive twin, in any order of
// beginning and finishing.
func TestNumbersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newRequestNumbers(&queuePlaces{max: maxCellWaits})
		var last uint64
		var open []uint64
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if len(open) >= maxOrdinary {
					return
				}
				number, err := n.allocate(context.Background(), classChange)
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

// Close and Release are carried through also if their callers left when every
// attempt had been refused for now, as while there is no master to take them.
func TestRefusedCloseAndReleaseAreCarriedThrough(t *testing.T) {
	for name, refusal := range map[string]*api.Error{
		"no master":  api.Errorf(api.Unavailable, "it cannot serve yet"),
		"not master": api.Errorf(api.NotMaster, "it is not the master"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := lockable(t, c, 0)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
				refuse := func(s seen) verb {
					if s.method == "Close" || s.method == "Release" {
						return fail(refusal)
					}
					return nil
				}
				leave := func(what string, call func(context.Context) error) {
					f.script(refuse)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if err := call(ctx); !errors.Is(err, api.Uncertain) {
						t.Errorf("%s: %v", what, err)
					}
					f.script(nil)
					time.Sleep(2 * time.Second)
					synctest.Wait()
				}
				leave("Release", l.Release)
				if held := f.state().held; held != 0 {
					t.Errorf("the lock is still held: %d", held)
				}
				leave("Close", h.Close)
				if handles := f.state().handles; handles != 0 {
					t.Errorf("%d handles are still open", handles)
				}
				if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
					t.Errorf("outstanding %v", open)
				}
				closeClient(t, c)
			})
		})
	}
}
