//go:build linux

package recipes

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const farAway = 100 * time.Millisecond // each way

// far opens a session of a client whose calls take their time, so that much may happen between two of them.
func (w *world) far() *client.Client {
	w.t.Helper()
	w.Slow("far", farAway)
	return w.dial("far")
}

// An item that is given back after another has read it, and before that one has its lock, is not begun by what was read: the
// last try stays the last one, and its reason is kept.
func TestQueueItemIsWrittenAfterItWasRead(t *testing.T) {
	t.Parallel()
	for at := time.Duration(0); at < 20*farAway; at += farAway / 2 {
		inSmallWorld(t, func(w *world) {
			o := QueueOptions{Attempts: 1}
			near := NewQueue(w.dial("near"), queueDir, o)
			_, err := near.Put(w.ctx, nil)
			w.ok(err)
			item, err := near.Take(w.ctx)
			w.ok(err)
			far := NewQueue(w.far(), queueDir, o)
			got := make(chan error, 1)
			go func() {
				ctx, cancel := w.brief(10 * time.Second)
				defer cancel()
				_, err := far.Take(ctx)
				got <- err
			}()
			pass(at)
			w.ok(item.Fail(w.ctx, "bad", 0))
			if err := <-got; !errors.Is(err, api.DeadlineExceeded) {
				t.Errorf("given back after %v, it was taken again: %v", at, err)
			}
			if dead, err := near.DeadLetters(w.ctx); err != nil || len(dead) != 1 || dead[0].Reason != "bad" || dead[0].Attempts != 1 {
				t.Errorf("given back after %v: %+v, %v", at, dead, err)
			}
		})
	}
}

// A try is not counted, nor begun, if the lock was taken away before the count was written.
func TestQueueTryOfWhoWasRobbedIsNotCounted(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		operator := w.dial("operator")
		id, err := NewQueue(operator, queueDir, QueueOptions{}).Put(w.ctx, nil)
		w.ok(err)
		far := w.far()
		got := make(chan *Item, 1)
		go func() {
			item, err := NewQueue(far, queueDir, QueueOptions{}).Take(w.ctx)
			if err != nil {
				t.Error(err)
			}
			got <- item
		}()
		path := queueDir + "/" + taskPrefix + id
		for held := false; !held; pass(farAway / 20) {
			locks, err := operator.Cell().Locks(w.ctx, path)
			w.ok(err)
			held = len(locks) == 1 && len(locks[0].Holders) == 1
		}
		w.ok(operator.BreakLock(w.ctx, path, "a test", true)) // far does not know yet that it had it
		item := <-got
		if item == nil {
			return
		}
		pass(time.Second)
		if err := item.Err(); err != nil || item.Attempt() != 1 {
			t.Errorf("it is at try %d: %v", item.Attempt(), err)
		}
	})
}
