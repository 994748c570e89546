package chubbylock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

const path = "/ls/local/leader"

// act is something that a leader did.
type act struct {
	who   string
	token uint64
}

// world is a cell, its candidates, and what leaders have done.
type world struct {
	*testing.T
	cell *celltest.Cell

	mu     sync.Mutex // guards what follows
	acts   []act
	wakes  map[string]chan struct{} // of stopped candidates; closed to continue them
	herald map[string]string        // the leader that OnNewLeader reported to a candidate last
}

func inWorld(t *testing.T, test func(w *world)) {
	celltest.Run(t, 3, func(t *testing.T, c *celltest.Cell) {
		test(&world{T: t, cell: c, wakes: map[string]chan struct{}{}, herald: map[string]string{}})
	})
}

// lock returns a Lock with a lock-delay, or with none if that is 0.
func (w *world) lock(name string, delay time.Duration) *chubbylock.Lock {
	w.Helper()
	cfg := chubbylock.Config{Client: w.cell.ConfigOf(name), Path: path, Identity: name, LockDelay: delay}
	switch delay {
	case 0:
		cfg.LockDelay = -1
	case api.DefaultLockDelay:
		cfg.LockDelay = 0
	}
	l, err := chubbylock.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.close(l) })
	return l
}

func (w *world) close(l *chubbylock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx) // its host may be cut off, or its session gone
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// config returns the configuration of client-go's own components.
func (w *world) config(l *chubbylock.Lock, work func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: work, OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.herald[l.Identity()] = who
			},
		},
	}
}

// work acts every 10 ms until its context ends, and not while its candidate is stopped.
func (w *world) work(name string) func(context.Context) {
	return func(ctx context.Context) {
		for {
			w.mu.Lock()
			asleep := w.wakes[name]
			w.mu.Unlock()
			if asleep != nil {
				<-asleep
			}
			if ctx.Err() != nil {
				return
			}
			w.act(ctx, name)
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// act checks that no later leader has acted before.
func (w *world) act(ctx context.Context, name string) {
	seq, ok := chubbylock.FromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.acts); !ok || seq.Token() == 0 {
		w.Errorf("%s leads without a sequencer", name)
	} else if n > 0 && (seq.Token() < w.acts[n-1].token || seq.Token() == w.acts[n-1].token && name != w.acts[n-1].who) {
		w.Errorf("two leaders: %s acts with token %d after %s with %d", name, seq.Token(), w.acts[n-1].who, w.acts[n-1].token)
	}
	w.acts = append(w.acts, act{name, seq.Token()})
}

func (w *world) pause(name string) {
	w.mu.Lock()
	w.wakes[name] = make(chan struct{})
	w.mu.Unlock()
	w.cell.Pause(name)
}

func (w *world) resume(name string) {
	w.cell.Resume(name)
	w.mu.Lock()
	close(w.wakes[name])
	delete(w.wakes, name)
	w.mu.Unlock()
}

// leader waits until a leader acts after now, at most for limit. It returns the leader and its token.
func (w *world) leader(limit time.Duration) act {
	w.Helper()
	w.mu.Lock()
	before := len(w.acts)
	w.mu.Unlock()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		if len(w.acts) > before {
			defer w.mu.Unlock()
			return w.acts[len(w.acts)-1]
		}
		w.mu.Unlock()
	}
	w.Fatalf("nobody leads within %v", limit)
	return act{}
}

// told waits until OnNewLeader has reported another leader to a candidate.
func (w *world) told(name, leader string, limit time.Duration) {
	w.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		heard := w.herald[name]
		w.mu.Unlock()
		if heard == leader {
			return
		}
	}
	w.Errorf("%s was not told that %s leads", name, leader)
}

// candidate is a program that becomes a candidate again and again.
type candidate struct {
	name string
	lock *chubbylock.Lock
	stop context.CancelFunc
	done chan struct{}
}

func (w *world) run(name string, delay time.Duration, edits ...func(*leaderelection.LeaderElectionConfig)) *candidate {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	c := &candidate{name: name, lock: w.lock(name, delay), stop: stop, done: make(chan struct{})}
	cfg := w.config(c.lock, w.work(name))
	for _, edit := range edits {
		edit(&cfg)
	}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			if err := chubbylock.Run(ctx, cfg); (err == nil) != (ctx.Err() != nil) || err != nil && api.CodeOf(err) != api.LockLost {
				w.Errorf("%s: %v, and its context: %v", name, err, ctx.Err())
			}
		}
	}()
	w.Cleanup(func() { stop(); <-c.done })
	return c
}

// pair runs two candidates. It returns the leader first, when the other has learnt of it and waits.
func (w *world) pair(delay time.Duration, edits ...func(*leaderelection.LeaderElectionConfig)) (leader, next *candidate) {
	w.Helper()
	leader = w.run("one", delay, edits...)
	w.leader(10 * time.Second)
	next = w.run("two", delay, edits...)
	w.told("two", "one", 10*time.Second)
	time.Sleep(5 * time.Second)
	return leader, next
}
