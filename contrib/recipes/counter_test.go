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

// session returns the session of a Keeper.
func (w *world) session(k *client.Keeper) (id api.SessionID) {
	w.T.Helper()
	w.OK(k.Do(w.Ctx, func(c *client.Client) error { id = c.Session(); return nil }))
	return id
}

func (w *world) counts(k *Counter, want int64) {
	w.T.Helper()
	if n, err := k.Get(w.Ctx); n != want || err != nil {
		w.T.Errorf("the number is %d, %v; want %d", n, err, want)
	}
}

func (w *world) adds(k *Counter, delta, want int64) {
	w.T.Helper()
	if n, err := k.Add(w.Ctx, delta); n != want || err != nil {
		w.T.Errorf("add %d: %d, %v; want %d", delta, n, err, want)
	}
}

func TestCounter(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		one, two, op := NewCounter(w.Keep("one"), counterDir), NewCounter(w.Keep("two"), counterDir), w.Client("op")
		w.counts(one, 0)
		w.adds(one, 3, 3)
		w.adds(two, -5, -2)
		w.adds(one, 0, -2)
		w.adds(one, 10, 8)
		w.counts(two, 8)
		if text := w.Cat(op, counterDir+"/value"); text != "8" {
			t.Errorf("the file holds %q", text)
		}
		w.Put(op, counterDir+"/value", "100\n") // by hand
		w.adds(two, 1, 101)
		if _, _, err := one.Settle(w.Ctx); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("settle what had an answer: %v", err)
		}
		w.Put(op, counterDir+"/value", "many")
		for _, err := range []error{second(one.Get(w.Ctx)), second(one.Add(w.Ctx, 1))} {
			if !errors.Is(err, api.Corrupt) {
				t.Error(err)
			}
		}
		w.Put(op, counterDir+"/value", "9223372036854775806")
		w.adds(one, 1, math.MaxInt64)
		if _, err := one.Add(w.Ctx, 1); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("too much: %v", err)
		}
		w.Put(op, counterDir+"/value", "5")
		w.adds(one, 1, 6) // it looks again
		w.OK(one.Close(w.Ctx))
		w.OK(one.Close(w.Ctx))
		w.OK(two.Close(w.Ctx))
		if _, err := one.Add(w.Ctx, 1); !errors.Is(err, api.HandleClosed) {
			t.Errorf("after Close: %v", err)
		}
		list, err := op.List(w.Ctx, counterDir+"/adders")
		if w.OK(err); len(list) > 0 {
			t.Errorf("left behind: %v", list)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A context that has ended before the call says so, and of no other call; Close goes on for a moment, as what gives something back does.
func TestCounterEndedContext(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		k, op := NewCounter(w.Keep("one"), counterDir), w.Client("op")
		w.adds(k, 1, 1)
		ended, cancel := context.WithCancel(w.Ctx)
		cancel()
		for range 50 { // a select between the turn and the context takes either
			if _, err := k.Add(ended, 1); !errors.Is(err, api.Cancelled) || errors.Is(err, api.Uncertain) || strings.Contains(err.Error(), "another call") {
				t.Fatalf("Add: %v", err)
			}
		}
		w.counts(k, 1)
		w.OK(k.Close(ended))
		list, err := op.List(w.Ctx, counterDir+"/adders")
		if w.OK(err); len(list) > 0 {
			t.Errorf("left behind: %v", list)
		}
	})
}

// A fence that is not valid any more has nothing added.
func TestCounterFence(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		k, c := NewCounter(w.Keep("one"), counterDir), w.Client("primary")
		w.Put(c, "/ls/local/primary", "")
		l, err := c.Acquire(w.Ctx, "/ls/local/primary")
		w.OK(err)
		if n, err := k.Add(w.Ctx, 1, l.Sequencer()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		w.OK(l.Release(w.Ctx))
		if _, err := k.Add(w.Ctx, 1, l.Sequencer()); !errors.Is(err, api.BadSequencer) || errors.Is(err, api.Uncertain) {
			t.Errorf("after the release: %v", err)
		}
		w.counts(k, 1)
		w.adds(k, 1, 2)
	})
}

// lossy is a host whose answers to transactions get lost while losing is set.
func (w *world) lossy(host string, losing *atomic.Bool) *client.Keeper {
	return w.Keep(host, func(cfg *client.Config) {
		cfg.Dialer = w.Lossy(host, func(method string) bool { return losing.Load() && strings.HasSuffix(method, "/Txn") })
	})
}

// An addition whose answer was lost counts once: when the session is lost, too, the next finds that it was made; and when the
// caller has given up, Settle says so. One that was not made and is settled is never made.
func TestCounterLostAnswers(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		var losing atomic.Bool
		keeper := w.lossy("one", &losing)
		k, other := NewCounter(keeper, counterDir), NewCounter(w.Keep("two"), counterDir)
		w.adds(k, 1, 1)
		for n := int64(2); n < 5; n++ {
			losing.Store(true)
			added := make(chan error)
			go func() {
				is, err := k.Add(w.Ctx, 1)
				if is != 2*n-2 {
					t.Errorf("its addition made %d, want %d", is, 2*n-2)
				}
				added <- err
			}()
			pass(time.Second) // it was made, and goes on without an answer
			w.counts(other, 2*n-2)
			w.adds(other, 1, 2*n-1)
			id := w.session(keeper)
			w.Expire(id)
			losing.Store(false)
			w.OK(<-added)
			w.counts(other, 2*n-1)
		}
		losing.Store(true)
		brief, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		if _, err := k.Add(brief, 1); !errors.Is(err, api.Uncertain) {
			t.Errorf("without an answer: %v", err)
		}
		losing.Store(false)
		if n, counted, err := k.Settle(w.Ctx); n != 8 || !counted || err != nil {
			t.Errorf("settle: %d, %t, %v", n, counted, err)
		}
		w.adds(k, 1, 9)
		w.Cut("one")
		brief, cancel = context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		if _, err := k.Add(brief, 1); !errors.Is(err, api.Uncertain) {
			t.Errorf("without a cell: %v", err)
		}
		w.Heal("one")
		_, counted, err := k.Settle(w.Ctx) // it may have been on its way
		w.OK(err)
		want := int64(9)
		if counted {
			want++
		}
		w.Settle()
		w.counts(other, want)
		w.adds(k, 1, want+1)
		w.OK(k.keeper.Close(w.Ctx))
		for range 2 {
			if _, err := k.Add(w.Ctx, 1); err == nil || errors.Is(err, api.Uncertain) {
				t.Errorf("without a session: %v", err)
			}
		}
	})
}

// What was never settled is not counted twice by the next Add; and of what others have removed the trace of nothing is claimed.
func TestCounterWithoutItsMark(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		var losing atomic.Bool
		keeper, op := w.lossy("one", &losing), w.Client("op")
		k := NewCounter(keeper, counterDir)
		w.adds(k, 1, 1)
		w.OK(op.RemoveAll(w.Ctx, counterDir+"/adders"))
		w.adds(k, 1, 2) // nothing was under way
		losing.Store(true)
		brief, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		if _, err := k.Add(brief, 1); !errors.Is(err, api.Uncertain) {
			t.Error(err)
		}
		w.Expire(w.session(keeper))
		losing.Store(false)
		w.Settle()
		// Others make Counters, the first of which finds the mark.
		for range 3 {
			one := NewCounter(w.Keep("other"), counterDir)
			w.adds(one, 0, 3)
			w.OK(one.Close(w.Ctx))
		}
		for range 2 {
			if _, _, err := k.Settle(w.Ctx); !errors.Is(err, api.Uncertain) {
				t.Errorf("settle: %v", err)
			}
		}
		w.adds(k, 1, 4)
		list, err := op.List(w.Ctx, counterDir+"/adders")
		if w.OK(err); len(list) != 1 {
			t.Errorf("marks: %v", list)
		}
	})
}

// Whatever is killed, cut off, lost and given up, each addition counts once.
func TestCounterStorm(t *testing.T) {
	t.Parallel()
	const counters, additions = 4, 60
	inWorld(t, func(w *world) {
		w.Mkdir(w.Client("op"), "/ls/local/svc")
		var mu sync.Mutex // guards what follows
		var total int64
		given, settled := 0, 0
		busy, stop := context.WithCancel(w.Ctx)
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
					ctx, cancel := context.WithTimeout(w.Ctx, time.Duration(r.IntN(1+r.IntN(2000)))*time.Millisecond)
					_, err := k.Add(ctx, delta)
					cancel()
					mu.Lock()
					switch {
					case err == nil:
						total += delta
					case errors.Is(err, api.Uncertain):
						given++
						mu.Unlock()
						_, counted, err := k.Settle(w.Ctx)
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
					pass(time.Duration(r.IntN(300)) * time.Millisecond)
				}
			})
			troubles.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 8))
				for busy.Err() == nil {
					switch r.IntN(4) {
					case 0:
						losing.Store(true)
						pass(time.Duration(r.IntN(3000)) * time.Millisecond)
						losing.Store(false)
					case 1:
						w.Cut(host)
						pass(time.Duration(r.IntN(3000)) * time.Millisecond)
						w.Heal(host)
					case 2:
						w.Expire(w.session(keeper))
					}
					pass(time.Duration(r.IntN(3000)) * time.Millisecond)
				}
			})
		}
		troubles.Go(func() {
			for busy.Err() == nil {
				pass(5 * time.Second)
				w.Succeed()
			}
		})
		all.Wait()
		stop()
		troubles.Wait()
		w.counts(NewCounter(w.Keep("reader"), counterDir), total)
		t.Logf("%d in the end; %d additions were given up, of which %d were counted", total, given, settled)
		if settled == 0 || settled == given {
			t.Error("want some of both kinds")
		}
	})
}
