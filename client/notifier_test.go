package client

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// A receiver that is stuck holds up nobody, and what waits for it is bounded: of the
// lines of the log the newest are told; of the changes the first, and then the last.
func TestSlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier()
		stop, gate := make(chan struct{}), make(chan struct{})
		var lines, changes, all []int
		var running sync.WaitGroup
		running.Go(func() { n.deliverAll(stop) })
		n.enqueueLog(func() { <-gate })
		synctest.Wait()
		const last = 3*maxNotices - 1
		for i := range last + 1 {
			n.enqueueLog(func() { lines, all = append(lines, i), append(all, i) })
			n.enqueueChange(func() { changes, all = append(changes, i), append(all, i) })
		}
		close(gate)
		synctest.Wait()
		if len(lines) != maxNotices || lines[0] != 2*maxNotices || lines[maxNotices-1] != last {
			t.Errorf("lines %v", lines)
		}
		if len(changes) != maxNotices || changes[maxNotices-2] != maxNotices-2 || changes[maxNotices-1] != last {
			t.Errorf("changes %v", changes)
		}
		if !slices.IsSorted(all) {
			t.Errorf("out of order: %v", all)
		}
		close(stop)
		running.Wait()
	})
}

// What was to be told when Close is called is told before it returns: that the session
// is gone, most of all, as that is when programs call it.
func TestClosedAfterTheLastNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 32 { // nothing says which of two channels is read first
			n := newNotifier()
			stop, gate := make(chan struct{}), make(chan struct{})
			told := false
			var running sync.WaitGroup
			running.Go(func() { n.deliverAll(stop) })
			n.enqueueLog(func() { <-gate })
			synctest.Wait()
			n.enqueueChange(func() { told = true })
			close(stop)
			close(gate)
			running.Wait()
			if !told {
				t.Fatal("the last change was not told")
			}
		}
	})
}

// A process that was stopped for longer than its lease is told that its session is in
// jeopardy, however many locks it holds, each of which has a line of the log.
func TestJeopardyIsToldWithManyLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var jump atomic.Int64
		cfg, r := f.recorded()
		cfg.Clock = func() session.Instant { return session.Instant(time.Since(f.began)).Add(time.Duration(jump.Load())) }
		c := f.client(cfg)
		for i := range 2 * maxNotices {
			h := &Handle{client: c, path: fmt.Sprintf("/ls/foo/%d", i)}
			l := newLock(h, lockTerms{mode: api.Exclusive}, f.parsedSequencer(7))
			if err := c.session.trackLock(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		f.cut(addresses()...)
		jump.Store(int64(20 * time.Second))
		if state := c.State(); state != session.Jeopardy {
			t.Fatalf("after 20 s: %v", state)
		}
		synctest.Wait()
		if states := r.states(); !slices.Equal(states, []session.State{session.Jeopardy}) {
			t.Errorf("told %v", states)
		}
		_ = c.Close(t.Context()) // nobody is there to be told
	})
}
