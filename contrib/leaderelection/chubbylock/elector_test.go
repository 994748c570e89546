package chubbylock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

// elect runs an elector as client-go does, without Run. stop ends the elector and waits for it.
func (w *world) elect(l *chubbylock.Lock, work func(context.Context), edits ...func(*leaderelection.LeaderElectionConfig)) (stop func(), elector *leaderelection.LeaderElector) {
	w.Helper()
	cfg := w.config(l, work)
	for _, edit := range edits {
		edit(&cfg)
	}
	elector, err := leaderelection.NewLeaderElector(cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	w.Cleanup(stop)
	return stop, elector
}

// unguarded returns work that does not use this package.
func (w *world) unguarded(working *atomic.Int32) func(context.Context) {
	return func(ctx context.Context) {
		working.Add(1)
		<-ctx.Done()
		working.Add(-1)
	}
}

// TestUnguarded: an elector of client-go with only its lock replaced hands over at once when
// it releases, and after lease and lock-delay when it does not.
func TestUnguarded(t *testing.T) {
	for _, release := range []bool{true, false} {
		inWorld(t, func(w *world) {
			const delay = api.DefaultLockDelay
			var one, two atomic.Int32
			edit := func(cfg *leaderelection.LeaderElectionConfig) { cfg.ReleaseOnCancel = release }
			stop, elector := w.elect(w.lock("one", delay), w.unguarded(&one), edit)
			w.Sleep(5 * time.Second)
			w.elect(w.lock("two", delay), w.unguarded(&two), edit)
			w.Sleep(20 * time.Second)
			if one.Load() != 1 || two.Load() != 0 || !elector.IsLeader() {
				w.Fatalf("%d and %d lead, %v", one.Load(), two.Load(), elector.IsLeader())
			}
			stop()
			if !release {
				w.Sleep(api.DefaultLease*5/12 + delay)
				if two.Load() != 0 {
					w.Error("the next leads although nobody said that the work had stopped")
				}
				w.Sleep(api.DefaultLease * 7 / 12)
			}
			w.Sleep(100 * time.Millisecond)
			if one.Load() != 0 || two.Load() != 1 {
				w.Errorf("release %v: %d and %d lead", release, one.Load(), two.Load())
			}
		})
	}
}

// TestGuardInElector: guarded work stops in time; client-go would stop it RenewDeadline too late.
// The elector does not continue to lead without work: the same Run does not win again, the next
// does.
func TestGuardInElector(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("one", 0)
		guarded := func(name string, l *chubbylock.Lock) func(context.Context) {
			return func(ctx context.Context) {
				ctx, done := l.Guard(ctx)
				defer done()
				w.work(name)(ctx)
			}
		}
		stop, elector := w.elect(l, guarded("one", l))
		first := w.Leader("", time.Second)
		if seq, ok := l.Sequencer(); !ok || seq.Token() != first.Token {
			w.Errorf("the sequencer: %v, %v, want token %d", seq, ok, first.Token)
		}
		w.Sleep(10 * time.Second)
		w.Operate(func(ctx context.Context, c *client.Client, _ api.Holder) error {
			return c.BreakLock(ctx, path, "a drill", false)
		})
		w.Sleep(time.Second)
		if _, ok := l.Sequencer(); ok {
			w.Error("it has a sequencer of a lock that it lost")
		}
		if ctx, done := l.Guard(w.Context()); ctx.Err() == nil {
			w.Error("it guards work of a lock that it lost")
		} else {
			done()
		}
		w.Sleep(time.Minute)
		if elector.IsLeader() {
			w.Error("the elector believes that it leads")
		}
		stop()
		w.elect(l, guarded("one", l))
		if again := w.Leader("", time.Second); again.Token <= first.Token {
			w.Errorf("%+v, and then %+v", first, again)
		}
	})
}

// TestRenewalsAreNotWritten: a leader that continues to lead writes nothing, and each waiting
// candidate learns of it once.
func TestRenewalsAreNotWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pair(0)
		c, err := client.New(w.Context(), w.Cell.ConfigOf("reader"))
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close(w.Context())
		h, err := c.Open(w.Context(), path, client.OpenOptions{Read: true})
		if err != nil {
			w.Fatal(err)
		}
		contents, before, err := h.Contents(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		rec, seq, err := chubbylock.ParseRecord(contents)
		if err != nil || rec.HolderIdentity != "one" || c.CheckSequencer(w.Context(), seq.String()) != nil {
			w.Errorf("%+v, %v, %v", rec, seq, err)
		}
		w.Sleep(2 * time.Minute)
		if after, err := h.Stat(w.Context()); err != nil || after.Content != before.Content {
			w.Errorf("%+v, then %+v, %v", before, after, err)
		}
	})
}
