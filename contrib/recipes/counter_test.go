//go:build linux

package recipes

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const counterDir = "/ls/local/svc/counter"

// keeper returns a Keeper of a host, which is closed at the end of the test.
func (w *world) keeper(host string, edits ...func(*client.Config)) *client.Keeper {
	w.t.Helper()
	cfg := w.config(host)
	for _, edit := range edits {
		edit(&cfg)
	}
	k, err := client.Keep(w.ctx, cfg)
	w.ok(err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.Close(ctx) // it may be cut off
	})
	return k
}

// session returns the session of a Keeper.
func (w *world) session(k *client.Keeper) (id api.SessionID) {
	w.t.Helper()
	w.ok(k.Do(w.ctx, func(c *client.Client) error { id = c.Session(); return nil }))
	return id
}

func (w *world) counts(k *Counter, want int64) {
	w.t.Helper()
	if n, err := k.Get(w.ctx); n != want || err != nil {
		w.t.Errorf("the number is %d, %v; want %d", n, err, want)
	}
}

func (w *world) adds(k *Counter, delta, want int64) {
	w.t.Helper()
	if n, err := k.Add(w.ctx, delta); n != want || err != nil {
		w.t.Errorf("add %d: %d, %v; want %d", delta, n, err, want)
	}
}

func TestCounter(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		one, two, op := NewCounter(w.keeper("one"), counterDir), NewCounter(w.keeper("two"), counterDir), w.dial("op")
		w.counts(one, 0)
		w.adds(one, 3, 3)
		w.adds(two, -5, -2)
		w.adds(one, 0, -2)
		w.adds(one, 10, 8)
		w.counts(two, 8)
		if text := w.cat(op, counterDir+"/value"); text != "8" {
			t.Errorf("the file holds %q", text)
		}
		w.put(op, counterDir+"/value", "100\n") // by hand
		w.adds(two, 1, 101)
		if _, _, err := one.Settle(w.ctx); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("settle what had an answer: %v", err)
		}
		w.put(op, counterDir+"/value", "many")
		for _, err := range []error{second(one.Get(w.ctx)), second(one.Add(w.ctx, 1))} {
			if !errors.Is(err, api.Corrupt) {
				t.Error(err)
			}
		}
		w.put(op, counterDir+"/value", "9223372036854775806")
		w.adds(one, 1, math.MaxInt64)
		if _, err := one.Add(w.ctx, 1); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("too much: %v", err)
		}
		w.put(op, counterDir+"/value", "5")
		w.adds(one, 1, 6) // it looks again
		w.ok(one.Close(w.ctx))
		w.ok(one.Close(w.ctx))
		w.ok(two.Close(w.ctx))
		if _, err := one.Add(w.ctx, 1); !errors.Is(err, api.HandleClosed) {
			t.Errorf("after Close: %v", err)
		}
		list, err := op.List(w.ctx, counterDir+"/adders")
		if w.ok(err); len(list) > 0 {
			t.Errorf("left behind: %v", list)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A context that has ended before the call says so, and of no other call; Close goes on for a moment, as what gives something back does.
func TestCounterEndedContext(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		k, op := NewCounter(w.keeper("one"), counterDir), w.dial("op")
		w.adds(k, 1, 1)
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		for range 50 { // a select between the turn and the context takes either
			if _, err := k.Add(ended, 1); !errors.Is(err, api.Cancelled) || errors.Is(err, api.Uncertain) || strings.Contains(err.Error(), "another call") {
				t.Fatalf("Add: %v", err)
			}
		}
		w.counts(k, 1)
		w.ok(k.Close(ended))
		list, err := op.List(w.ctx, counterDir+"/adders")
		if w.ok(err); len(list) > 0 {
			t.Errorf("left behind: %v", list)
		}
	})
}

// A fence that is not valid any more has nothing added.
func TestCounterFence(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		k, c := NewCounter(w.keeper("one"), counterDir), w.dial("primary")
		w.put(c, "/ls/local/primary", "")
		l, err := c.Acquire(w.ctx, "/ls/local/primary")
		w.ok(err)
		if n, err := k.Add(w.ctx, 1, l.Sequencer()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		w.ok(l.Release(w.ctx))
		if _, err := k.Add(w.ctx, 1, l.Sequencer()); !errors.Is(err, api.BadSequencer) || errors.Is(err, api.Uncertain) {
			t.Errorf("after the release: %v", err)
		}
		w.counts(k, 1)
		w.adds(k, 1, 2)
	})
}

// lossy is a host whose answers to transactions get lost while losing is set.
func (w *world) lossy(host string, losing *atomic.Bool) *client.Keeper {
	return w.keeper(host, func(cfg *client.Config) {
		cfg.Dialer = w.Lossy(host, func(method string) bool { return losing.Load() && strings.HasSuffix(method, "/Txn") })
	})
}

// An addition whose answer was lost counts once: when the session is lost, too, the next finds that it was made; and when the
// caller has given up, Settle says so. One that was not made and is settled is never made.
func TestCounterLostAnswers(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		var losing atomic.Bool
		keeper := w.lossy("one", &losing)
		k, other := NewCounter(keeper, counterDir), NewCounter(w.keeper("two"), counterDir)
		w.adds(k, 1, 1)
		for n := int64(2); n < 5; n++ {
			losing.Store(true)
			added := make(chan error)
			go func() {
				is, err := k.Add(w.ctx, 1)
				if is != 2*n-2 {
					t.Errorf("its addition made %d, want %d", is, 2*n-2)
				}
				added <- err
			}()
			w.sleep(time.Second) // it was made, and goes on without an answer
			w.counts(other, 2*n-2)
			w.adds(other, 1, 2*n-1)
			id := w.session(keeper)
			w.Expire(id)
			losing.Store(false)
			w.ok(<-added)
			w.counts(other, 2*n-1)
		}
		losing.Store(true)
		brief, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if _, err := k.Add(brief, 1); !errors.Is(err, api.Uncertain) {
			t.Errorf("without an answer: %v", err)
		}
		losing.Store(false)
		if n, counted, err := k.Settle(w.ctx); n != 8 || !counted || err != nil {
			t.Errorf("settle: %d, %t, %v", n, counted, err)
		}
		w.adds(k, 1, 9)
		w.Cut("one")
		brief, cancel = context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if _, err := k.Add(brief, 1); !errors.Is(err, api.Uncertain) {
			t.Errorf("without a cell: %v", err)
		}
		w.Heal("one")
		_, counted, err := k.Settle(w.ctx) // it may have been on its way
		w.ok(err)
		want := int64(9)
		if counted {
			want++
		}
		w.settle()
		w.counts(other, want)
		w.adds(k, 1, want+1)
		w.ok(k.keeper.Close(w.ctx))
		for range 2 {
			if _, err := k.Add(w.ctx, 1); err == nil || errors.Is(err, api.Uncertain) {
				t.Errorf("without a session: %v", err)
			}
		}
	})
}

// What was never settled is not counted twice by the next Add; and of what others have removed the trace of nothing is claimed.
func TestCounterWithoutItsMark(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		var losing atomic.Bool
		keeper, op := w.lossy("one", &losing), w.dial("op")
		k := NewCounter(keeper, counterDir)
		w.adds(k, 1, 1)
		w.ok(op.RemoveAll(w.ctx, counterDir+"/adders"))
		w.adds(k, 1, 2) // nothing was under way
		losing.Store(true)
		brief, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if _, err := k.Add(brief, 1); !errors.Is(err, api.Uncertain) {
			t.Error(err)
		}
		w.Expire(w.session(keeper))
		losing.Store(false)
		w.settle()
		// Others make Counters, the first of which finds the mark.
		for range 3 {
			one := NewCounter(w.keeper("other"), counterDir)
			w.adds(one, 0, 3)
			w.ok(one.Close(w.ctx))
		}
		for range 2 {
			if _, _, err := k.Settle(w.ctx); !errors.Is(err, api.Uncertain) {
				t.Errorf("settle: %v", err)
			}
		}
		w.adds(k, 1, 4)
		list, err := op.List(w.ctx, counterDir+"/adders")
		if w.ok(err); len(list) != 1 {
			t.Errorf("marks: %v", list)
		}
	})
}

// Whatever is killed, cut off, lost and given up, each addition counts once.
func TestCounterStorm(t *testing.T) {
	t.Parallel()
	const counters, additions = 4, 60
	inWorld(t, func(w *world) {
		w.mkdir(w.dial("op"), "/ls/local/svc")
		var mu sync.Mutex // guards what follows
		var total int64
		given, settled := 0, 0
		busy, stop := context.WithCancel(w.ctx)
		var all, troubles sync.WaitGroup
		for i := range counters {
			host := string(rune('a' + i))
			losing := atomic.Bool{}
			keeper := w.lossy(host, &losing)
			r := rand.New(rand.NewPCG(uint64(i), 7))
			k := NewCounter(keeper, counterDir)
			all.Go(func() {
				for range additions {
					delta := int64(r.IntN(20) - 5)
					ctx, cancel := context.WithTimeout(w.ctx, time.Duration(r.IntN(1+r.IntN(2000)))*time.Millisecond)
					_, err := k.Add(ctx, delta)
					cancel()
					mu.Lock()
					switch {
					case err == nil:
						total += delta
					case errors.Is(err, api.Uncertain):
						given++
						mu.Unlock()
						_, counted, err := k.Settle(w.ctx)
						mu.Lock()
						if err != nil {
							t.Errorf("settle: %v", err)
						}
						if counted {
							settled++
							total += delta
						}
					}
					mu.Unlock()
					w.sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				}
			})
			troubles.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 8))
				for busy.Err() == nil {
					switch r.IntN(4) {
					case 0:
						losing.Store(true)
						w.sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
						losing.Store(false)
					case 1:
						w.Cut(host)
						w.sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
						w.Heal(host)
					case 2:
						w.Expire(w.session(keeper))
					}
					w.sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				}
			})
		}
		troubles.Go(func() {
			for busy.Err() == nil {
				w.sleep(5 * time.Second)
				w.failOver()
			}
		})
		all.Wait()
		stop()
		troubles.Wait()
		w.counts(NewCounter(w.keeper("reader"), counterDir), total)
		t.Logf("%d in the end; %d additions were given up, of which %d were counted", total, given, settled)
		if settled == 0 || settled == given {
			t.Error("want some of both kinds")
		}
	})
}
