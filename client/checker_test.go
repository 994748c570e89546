package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

func checked(generation uint64) sequencer.Sequencer {
	return sequencer.Sequencer{Cell: testCellID, Path: api.MustParsePath("/ls/foo/x"), Mode: api.Exclusive, Generation: api.Generation(generation)}
}

// give makes the lock held in that generation, without a word to anybody.
func (f *fake) give(generation uint64) {
	only := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holder = &fakeHold{session: only, gen: generation}
}

func newChecker(t *testing.T, c *Client, maxAge time.Duration) *CachingChecker {
	t.Helper()
	k, err := c.CachingChecker(maxAge)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (f *fake) good(k *CachingChecker, generation uint64) {
	f.t.Helper()
	if err := k.CheckSequencer(f.t.Context(), checked(generation)); err != nil {
		f.t.Errorf("%v: %d is refused: %v", time.Since(f.began), generation, err)
	}
}

func (f *fake) bad(k *CachingChecker, generation uint64) {
	f.t.Helper()
	if err := k.CheckSequencer(f.t.Context(), checked(generation)); !errors.Is(err, api.BadSequencer) {
		f.t.Errorf("%v: %d: %v; want BadSequencer", time.Since(f.began), generation, err)
	}
}

// asked checks how often the cell was asked so far.
func (f *fake) asked(want int) {
	f.t.Helper()
	if got := len(f.heard("CheckSequencer")); got != want {
		f.t.Errorf("%v: the cell was asked %d times, want %d", time.Since(f.began), got, want)
	}
}

// checking starts a Checker whose lock is held, in generation 101, and watched.
func (f *fake) checking(t *testing.T, cfg Config, maxAge time.Duration) (*Client, *CachingChecker) {
	t.Helper()
	c := f.client(cfg)
	f.give(101)
	k := newChecker(t, c, maxAge)
	f.good(k, 101)
	synctest.Wait()
	if maxAge > 0 && k.Stats().Watched != 1 {
		t.Fatalf("the lock is not watched: %+v", k.Stats())
	}
	f.mu.Lock()
	f.calls = nil
	f.mu.Unlock()
	return c, k
}

func TestCheckerMaxAge(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		for _, age := range []time.Duration{-1, time.Second + 1} {
			if _, err := c.CachingChecker(age); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%v: %v", age, err)
			}
		}
		closeClient(t, c)
	})
}

// A good answer serves until maxAge after its question was sent, however late it
// came; a bad one never.
func TestCheckerAgeCountsFromTheQuestion(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		f.script(func(s seen) verb {
			if s.method == "CheckSequencer" {
				return after(400 * time.Millisecond)
			}
			return nil
		})
		f.good(k, 101)
		f.asked(1)
		f.give(102)                        // without an event, as if that were under way
		time.Sleep(599 * time.Millisecond) // 999 ms after it was sent
		f.good(k, 101)
		f.asked(1)
		time.Sleep(time.Millisecond)
		f.bad(k, 101)
		f.bad(k, 101)
		f.asked(3)
		f.good(k, 102)
		f.bad(k, 101) // of two of a lock, one is good
		f.asked(5)
		k.Close()
		closeClient(t, c)
	})
}

// What was known falls at every event of the lock, and when events may be
// missing; and nothing else is needed to know better.
func TestCheckerFallsAtEvents(t *testing.T) {
	of := func(kind chubbypb.EventKind) func(*fake, *Client) {
		return func(f *fake, c *Client) {
			f.tell(f.only(), uint64(c.handles.all()[0].id), &chubbypb.Event{Kind: kind, Generation: 101})
		}
	}
	for name, happens := range map[string]func(*fake, *Client){
		"acquired": of(chubbypb.EventKind_EVENT_KIND_LOCK_ACQUIRED),
		"vacant":   of(chubbypb.EventKind_EVENT_KIND_LOCK_VACANT),
		"deleted":  of(chubbypb.EventKind_EVENT_KIND_HANDLE_INVALID),
		"lost":     func(f *fake, _ *Client) { f.post(f.only(), chubbypb.EventKind_EVENT_KIND_LOST) },
		"elected":  func(f *fake, _ *Client) { f.elect("b:1") },
		"elected, and no handle shown": func(f *fake, _ *Client) {
			f.script(func(s seen) verb {
				if s.method == "GetStat" {
					return hang
				}
				return nil
			})
			f.elect("b:1")
		},
		"ended": func(f *fake, c *Client) { c.session.endSession(EndedByCell, "by bob") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c, k := f.checking(t, f.config(), time.Second)
				f.good(k, 101)
				time.Sleep(10 * time.Millisecond)
				f.good(k, 101)
				f.asked(1)
				f.give(102)
				happens(f, c)
				time.Sleep(300 * time.Millisecond) // for the client to find the new master; less than maxAge
				f.bad(k, 101)
				f.good(k, 102)
				time.Sleep(100 * time.Millisecond)
				f.good(k, 102)
				if watched := k.Stats().Watched; (watched != 1) != (name == "ended") {
					t.Errorf("%d locks are watched afterwards", watched)
				}
				k.Close()
				closeClient(t, c)
			})
		})
	}
}

// In jeopardy nothing serves that was known before, though it is not old.
func TestCheckerInJeopardy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		f.script(func(s seen) verb {
			if s.method == "KeepAlive" {
				return hang
			}
			return nil
		})
		for c.Left() > 500*time.Millisecond {
			time.Sleep(100 * time.Millisecond)
		}
		f.good(k, 101)
		f.give(102)
		time.Sleep(c.Left() - time.Millisecond)
		f.good(k, 101) // that is the window
		time.Sleep(2 * time.Millisecond)
		f.bad(k, 101)
		f.good(k, 102)
		calls := len(f.heard("CheckSequencer"))
		f.good(k, 102)
		f.asked(calls + 1)
		k.Close()
		closeClient(t, c)
	})
}

// Close and the end of a caller's time end the waiting, and nothing is left.
func TestCheckerClose(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		time.Sleep(2 * time.Second)
		f.script(func(s seen) verb {
			if s.method == "CheckSequencer" {
				return hang
			}
			return nil
		})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.CheckSequencer(short, checked(101)); !errors.Is(err, api.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its time: %v", err)
		}
		synctest.Wait()
		if len(k.newest) != 0 {
			t.Error("nobody waits, and the call goes on")
		}
		waits := make(chan error)
		go func() { waits <- k.CheckSequencer(t.Context(), checked(101)) }()
		synctest.Wait()
		go k.Close()
		if err := <-waits; !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "Checker was closed") {
			t.Errorf("who waited: %v", err)
		}
		k.Close()
		if err := k.CheckSequencer(t.Context(), checked(101)); !errors.Is(err, api.Unavailable) {
			t.Errorf("after Close: %v", err)
		}
		closeClient(t, c)
	})
}

// The Client may be closed first.
func TestCheckerAfterItsClient(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		f.good(k, 101)
		closeClient(t, c)
		if err := k.CheckSequencer(t.Context(), checked(101)); err == nil || errors.Is(err, api.BadSequencer) {
			t.Errorf("without a cell: %v", err)
		}
		k.Close()
	})
}

// Whatever the network does, and whether or not events come: who is let in held
// the lock at some moment between maxAge before the question and the answer.
func TestCheckerNeverLetsInLongAfter(t *testing.T) {
	for _, maxAge := range []time.Duration{0, 50 * time.Millisecond, time.Second} {
		inBubble(t, func(t *testing.T, f *fake) {
			c, k := f.checking(t, f.config(), maxAge)
			f.script(func(s seen) verb {
				if s.method != "CheckSequencer" {
					return nil
				}
				return func(_ context.Context, next func() (any, error)) (any, error) {
					time.Sleep(time.Duration(rand.N(40)) * time.Millisecond)
					reply, err := next()
					time.Sleep(time.Duration(rand.N(40)) * time.Millisecond)
					return reply, err
				}
			})
			var mu sync.Mutex
			ended := map[uint64]time.Time{} // when each generation was over
			var group sync.WaitGroup
			newest := uint64(101)
			stop := make(chan struct{})
			for range 8 {
				group.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(rand.N(30)) * time.Millisecond):
						}
						mu.Lock()
						g := newest - uint64(rand.N(3))
						mu.Unlock()
						asked := time.Now()
						err := k.CheckSequencer(t.Context(), checked(g))
						mu.Lock()
						if over, known := ended[g]; err == nil && known && asked.Sub(over) > maxAge {
							t.Errorf("generation %d was let in though it was over %v before the question; maxAge is %v", g, asked.Sub(over), maxAge)
						}
						mu.Unlock()
					}
				})
			}
			for range 200 {
				time.Sleep(time.Duration(rand.N(150)) * time.Millisecond)
				mu.Lock()
				f.give(newest + 1)
				ended[newest] = time.Now()
				newest++
				mu.Unlock()
				if handles := c.handles.all(); rand.N(2) == 0 && len(handles) > 0 {
					f.tell(f.only(), uint64(handles[0].id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOCK_ACQUIRED, Generation: newest})
				}
			}
			close(stop)
			group.Wait()
			if stats := k.Stats(); stats.Asked == 0 || (stats.Kept == 0) != (maxAge == 0) {
				t.Errorf("%+v: the test shows nothing", stats)
			}
			k.Close()
			closeClient(t, c)
		})
	}
}
