package leaders

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
)

// Path is the file whose lock the candidates want.
const Path = "/ls/local/leader"

// Act is something that a leader did.
type Act struct {
	Who   string
	Token uint64
}

// World is a cell, its candidates, and what leaders have done.
type World struct {
	*testing.T
	Cell *celltest.Cell

	mu    sync.Mutex // guards what follows
	acts  []Act
	wakes map[string]chan struct{} // of paused candidates; closed to continue them
}

// Run runs a test with a cell of three replicas, in virtual time.
func Run(t *testing.T, test func(w *World)) {
	t.Helper()
	celltest.Run(t, 3, func(t *testing.T, c *celltest.Cell) {
		test(&World{T: t, Cell: c, wakes: map[string]chan struct{}{}})
	})
}

// Sleep lets virtual time pass.
func (w *World) Sleep(d time.Duration) { time.Sleep(d) }

// Lock returns the Lock of a candidate, which is closed at the end of the test; a delay of -1 is none.
func (w *World) Lock(name string, delay time.Duration) *chubbylock.Lock {
	w.Helper()
	l, err := chubbylock.New(chubbylock.Config{Client: w.Cell.ConfigOf(name), Path: Path, Identity: name, LockDelay: delay})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.Close(l) })
	return l
}

// Close closes a Lock, whose host may be cut off, or its session gone.
func (w *World) Close(l *chubbylock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
}

// Work acts every 10 ms until its context ends, and not while its candidate is paused.
func (w *World) Work(ctx context.Context, name string) {
	for {
		w.Halt(name)
		if ctx.Err() != nil {
			return
		}
		w.Act(ctx, name)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Halt waits while a candidate is paused.
func (w *World) Halt(name string) {
	w.mu.Lock()
	asleep := w.wakes[name]
	w.mu.Unlock()
	if asleep != nil {
		<-asleep
	}
}

// Act checks that no later leader has acted before.
func (w *World) Act(ctx context.Context, name string) {
	seq, ok := chubbylock.FromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.acts); !ok || seq.Token() == 0 {
		w.Errorf("%s leads without a sequencer", name)
	} else if n > 0 && (seq.Token() < w.acts[n-1].Token || seq.Token() == w.acts[n-1].Token && name != w.acts[n-1].Who) {
		w.Errorf("two leaders: %s acts with token %d after %s with %d", name, seq.Token(), w.acts[n-1].Who, w.acts[n-1].Token)
	}
	w.acts = append(w.acts, Act{name, seq.Token()})
}

// Pause stops a candidate, as SIGSTOP does.
func (w *World) Pause(name string) {
	w.mu.Lock()
	w.wakes[name] = make(chan struct{})
	w.mu.Unlock()
	w.Cell.Pause(name)
}

// Resume lets it go on.
func (w *World) Resume(name string) {
	w.Cell.Resume(name)
	w.mu.Lock()
	close(w.wakes[name])
	delete(w.wakes, name)
	w.mu.Unlock()
}

// Leader waits until a leader other than not acts after now, at most for limit.
func (w *World) Leader(not string, limit time.Duration) Act {
	w.Helper()
	w.mu.Lock()
	seen := len(w.acts)
	w.mu.Unlock()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		for _, a := range w.acts[seen:] {
			if a.Who != not {
				w.mu.Unlock()
				return a
			}
		}
		seen = len(w.acts)
		w.mu.Unlock()
	}
	w.Fatalf("nobody but %q leads within %v", not, limit)
	return Act{}
}

// Operate does an operator's action on the holder of the lock.
func (w *World) Operate(do func(ctx context.Context, c *client.Client, holder api.Holder) error) {
	w.Helper()
	c, err := client.New(w.Context(), w.Cell.ConfigOf("operator"))
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close(w.Context())
	locks, err := c.Cell().Locks(w.Context(), Path)
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
		w.Fatalf("%+v, %v", locks, err)
	}
	if err := do(w.Context(), c, locks[0].Holders[0]); err != nil {
		w.Fatal(err)
	}
}
