package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// Questions that wait at the same time are one call, which began after each of
// them; the one that was under way answers only who was there before it.
func TestCheckerCoalesces(t *testing.T) {
	for _, maxAge := range []time.Duration{0, time.Second} {
		inBubble(t, func(t *testing.T, f *fake) {
			c, k := f.checking(t, f.config(), maxAge)
			time.Sleep(2 * time.Second)
			f.script(func(s seen) verb {
				if s.method != "CheckSequencer" {
					return nil
				}
				return func(_ context.Context, next func() (any, error)) (any, error) { // decided, and then long on its way
					reply, err := next()
					time.Sleep(100 * time.Millisecond)
					return reply, err
				}
			})
			var group sync.WaitGroup
			ask := func(callers int, check func(*CachingChecker, uint64)) {
				for range callers {
					group.Go(func() { check(k, 101) })
				}
				time.Sleep(50 * time.Millisecond)
			}
			ask(1, f.good)
			if maxAge > 0 {
				ask(10, f.good) // an answer that is kept would do for these, so one that will be does
				group.Wait()
				f.asked(1)
			} else {
				f.give(102)
				ask(10, f.bad)
				group.Wait()
				f.asked(2)
			}
			k.Close()
			closeClient(t, c)
		})
	}
}

// A bad answer to a question that was sent before does not count for those who
// came after it.
func TestCheckerLateAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		time.Sleep(2 * time.Second)
		f.script(func(s seen) verb {
			if s.method == "CheckSequencer" && s.nth == 1 {
				return func(context.Context, func() (any, error)) (any, error) {
					time.Sleep(100 * time.Millisecond)
					return &chubbypb.CheckSequencerReply{Explanation: "not granted yet"}, nil
				}
			}
			return nil
		})
		var group sync.WaitGroup
		group.Go(func() { f.bad(k, 101) })
		time.Sleep(50 * time.Millisecond)
		group.Go(func() { f.good(k, 101) })
		group.Wait()
		f.asked(2)
		k.Close()
		closeClient(t, c)
	})
}

// An answer that an event overtook is an answer, and is not kept.
func TestCheckerOvertakenAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		time.Sleep(2 * time.Second)
		f.script(func(s seen) verb {
			if s.method == "CheckSequencer" && s.nth == 1 {
				return func(_ context.Context, next func() (any, error)) (any, error) {
					reply, err := next()
					f.give(102)
					f.tell(f.only(), uint64(c.handles.all()[0].id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOCK_ACQUIRED, Generation: 102})
					time.Sleep(100 * time.Millisecond)
					return reply, err
				}
			}
			return nil
		})
		f.good(k, 101)
		f.bad(k, 101)
		f.asked(2)
		k.Close()
		closeClient(t, c)
	})
}
