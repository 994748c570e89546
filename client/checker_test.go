package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func (f *fake) checker(t *testing.T, c *Client, maxAge time.Duration) *CachingChecker {
	t.Helper()
	k := ok(c.CachingChecker(maxAge))(t)
	f.ends = append(f.ends, k.Close)
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
	k := f.checker(t, c, maxAge)
	f.good(k, 101)
	synctest.Wait()
	if maxAge > 0 && k.Stats().Watched != 1 {
		t.Fatalf("the lock is not watched: %+v", k.Stats())
	}
	f.locked(func() { f.calls = nil })
	return c, k
}

func TestCheckerMaxAge(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		for _, age := range []time.Duration{-1, time.Second + 1} {
			if _, err := c.CachingChecker(age); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%v: %v", age, err)
			}
		}
	})
}

// A good answer serves until maxAge after its question was sent, however late it
// came; a bad one never.
func TestCheckerAgeCountsFromTheQuestion(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, k := f.checking(t, f.config(), time.Second)
		f.on("CheckSequencer", after(400*time.Millisecond))
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
			f.on("GetStat", hang)
			f.elect("b:1")
		},
		"ended": func(f *fake, c *Client) { c.session.endSession(EndedByCell, "by bob") },
	} {
		runInBubble(t, name, func(t *testing.T, f *fake) {
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
		})
	}
}

// In jeopardy nothing serves that was known before, though it is not old.
func TestCheckerInJeopardy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		f.on("KeepAlive", hang)
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
	})
}

// Close and the end of a caller's time end the waiting, and nothing is left.
func TestCheckerClose(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, k := f.checking(t, f.config(), time.Second)
		time.Sleep(2 * time.Second)
		f.on("CheckSequencer", hang)
		short := bounded(t, time.Second)
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
		wants(t, "after Close", k.CheckSequencer(t.Context(), checked(101)), api.Unavailable)
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
	})
}

// Whatever the network does, and whether or not events come: who is let in held
// the lock at some moment between maxAge before the question and the answer.
func TestCheckerNeverLetsInLongAfter(t *testing.T) {
	for _, maxAge := range []time.Duration{0, 50 * time.Millisecond, time.Second} {
		inBubble(t, func(t *testing.T, f *fake) {
			c, k := f.checking(t, f.config(), maxAge)
			f.on("CheckSequencer", func(_ context.Context, next func() (any, error)) (any, error) {
				time.Sleep(time.Duration(rand.N(40)) * time.Millisecond)
				reply, err := next()
				time.Sleep(time.Duration(rand.N(40)) * time.Millisecond)
				return reply, err
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
		})
	}
}

// A lock that cannot be watched is guarded by maxAge alone, and that is said
// once.
func TestCheckerWithoutEvents(t *testing.T) {
	for name, does := range map[string]verb{
		"Open": fail(api.Errorf(api.QuotaExceeded, "no room for a handle")),
		"GetStat": func(_ context.Context, next func() (any, error)) (any, error) {
			reply, err := next()
			if err == nil {
				reply.(*chubbypb.GetStatReply).Stat.Ephemeral = true
			}
			return reply, err
		},
	} {
		runInBubble(t, name, func(t *testing.T, f *fake) {
			var logged bytes.Buffer
			cfg := f.config()
			cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			c := f.client(cfg)
			f.give(101)
			f.on(name, does)
			k := f.checker(t, c, time.Second)
			f.good(k, 101)
			synctest.Wait()
			f.good(k, 101)
			f.good(k, 101)
			f.asked(2)
			f.give(102)
			time.Sleep(time.Second)
			f.bad(k, 101)
			for range 35 {
				f.good(k, 102)
				time.Sleep(time.Second)
			}
			if tries := len(f.heard("Open")); tries != 4 || k.Stats().Watched != 0 || f.state().handles != 0 {
				t.Errorf("tried %d times in 35 s, %+v, %d handles", tries, k.Stats(), f.state().handles)
			}
			k.Close()
			closeClient(t, c)
			if said := strings.Count(logged.String(), "cannot be watched"); said != 1 {
				t.Errorf("said %d times:\n%s", said, &logged)
			}
		})
	}
}

// However many locks there are, few are kept, and of these the handles are
// closed that are not needed any more.
func TestCheckerForgets(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.on("CheckSequencer", func(context.Context, func() (any, error)) (any, error) {
			return &chubbypb.CheckSequencerReply{Valid: true}, nil
		})
		k := f.checker(t, c, time.Second)
		k.maxLocks = 3
		ask := func(lock int) {
			s := checked(101)
			s.Path = api.MustParsePath(fmt.Sprintf("/ls/foo/%d", lock))
			for range 3 {
				noError(t, k.CheckSequencer(t.Context(), s))
				synctest.Wait()
			}
		}
		for lock := range 20 {
			ask(lock)
		}
		time.Sleep(time.Second)
		for lock := 17; lock < 20; lock++ { // there was no room to watch them before others were let go
			ask(lock)
		}
		if stats, open := k.Stats(), f.state().handles; stats.Locks != 3 || stats.Watched != 3 || open != 3 || k.recent.Len() != 3 || stats.Kept < 20 {
			t.Errorf("%+v, %d handles", stats, open)
		}
		k.Close()
		if open := f.state().handles; open != 0 || k.watchers != 0 || len(k.newest) != 0 {
			t.Errorf("%d handles are left, %d goroutines, %d questions", open, k.watchers, len(k.newest))
		}
	})
}
