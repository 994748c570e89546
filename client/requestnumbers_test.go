package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"pgregory.net/rapid"
)

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
		n := newRequestNumbers(make(chan struct{}, maxCellWaits))
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
