package chubbylock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/contrib/internal/leaders"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

const path = leaders.Path

// world is a cell, its candidates, and what leaders have done.
type world struct {
	*leaders.World

	mu     sync.Mutex        // guards what follows
	herald map[string]string // the leader that OnNewLeader reported to a candidate last
}

func inWorld(t *testing.T, test func(w *world)) {
	leaders.Run(t, func(w *leaders.World) { test(&world{World: w, herald: map[string]string{}}) })
}

// lock returns a Lock with a lock-delay, or with none if that is 0.
func (w *world) lock(name string, delay time.Duration) *chubbylock.Lock {
	w.Helper()
	switch delay {
	case 0:
		delay = -1
	case api.DefaultLockDelay:
		delay = 0
	}
	return w.Lock(name, delay)
}

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

func (w *world) work(name string) func(context.Context) {
	return func(ctx context.Context) { w.Work(ctx, name) }
}

// told waits until OnNewLeader has reported another leader to a candidate.
func (w *world) told(name, leader string, limit time.Duration) {
	w.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); w.Sleep(time.Millisecond) {
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
	w.Leader("", 10*time.Second)
	next = w.run("two", delay, edits...)
	w.told("two", "one", 10*time.Second)
	w.Sleep(5 * time.Second)
	return leader, next
}
