package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	failoverClients = 4
	// maxKills is how many leaders of five processes can die before the rest has no majority.
	maxKills = (members - 1) / 2
	// etcdAttempt bounds a write of an etcd client during a fail-over. Without it, a write that the
	// dead leader had accepted would wait for the server's timeout of seven seconds. ZooKeeper's and
	// Chubby's clients notice by themselves.
	etcdAttempt = 100 * time.Millisecond
	// calm is how long everything has to work before the next leader is killed.
	calm = 2 * time.Second
	// maxGap is when a fail-over is given up.
	maxGap = time.Minute
)

// errNotWithin ends a gap that counts as maxGap.
var errNotWithin = errors.New("not every client could write again within a minute")

// measureFailover kills the leader as often as o.kills says, which is at most maxKills. For each kill
// it measures the longest time for which any of the clients, which write as fast as they can, had
// no answer.
func measureFailover(ctx context.Context, o options, s system) (sample, error) {
	m, ok := s.(mortal)
	if !ok {
		return sample{}, errNotMeasured
	}
	return measureGaps(ctx, s, o.kills, m.KillLeader)
}

// measureHandOver has the leader hand over as often as o.kills says, and measures the same.
func measureHandOver(ctx context.Context, o options, s system) (sample, error) {
	h, ok := s.(handOverer)
	if !ok {
		return sample{}, errNotMeasured
	}
	return measureGaps(ctx, s, o.kills, h.HandOver)
}

// measureGaps measures the longest gap at each of n changes of the leader.
func measureGaps(ctx context.Context, s system, n int, change func(context.Context) error) (sample, error) {
	workers, err := connect(ctx, s, failoverClients)
	defer func() { _ = disconnect(ctx, workers) }() // what they would give back may be at a leader that is dead
	if err != nil {
		return sample{}, err
	}
	var times []time.Duration
	for range n {
		gap, err := measureGap(ctx, workers, change)
		if errors.Is(err, errNotWithin) {
			fmt.Fprintf(os.Stderr, "  %v\n", err)
			return sampleOf(append(times, maxGap)), nil // at least
		}
		if err != nil {
			return sample{}, err
		}
		times = append(times, gap)
	}
	return sampleOf(times), nil
}

// measureGap changes the leader while the workers write, and returns the longest gap.
func measureGap(ctx context.Context, workers []worker, change func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxGap, errNotWithin)
	defer cancel()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(stop)
	gaps := make([]*gap, len(workers))
	for i, w := range workers {
		gaps[i] = &gap{last: time.Now()}
		wait.Go(func() { gaps[i].follow(ctx, stop, w) })
	}
	if err := sleep(ctx, calm); err != nil {
		return 0, err
	}
	for _, g := range gaps {
		g.restart()
	}
	if err := change(ctx); err != nil {
		return 0, err
	}
	changed := time.Now()
	for _, g := range gaps {
		for !g.answeredSince(changed) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return 0, fmt.Errorf("%w; the last error of a client: %w", err, g.lastError())
			}
		}
	}
	if err := sleep(ctx, calm); err != nil { // a client that lost what it had could stumble later
		return 0, err
	}
	var widest time.Duration
	for _, g := range gaps {
		widest = max(widest, g.restart())
	}
	fmt.Fprintf(os.Stderr, "  another leader: %s without an answer\n", readable(widest))
	return widest, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// gap is the longest time between two answers to one client.
type gap struct {
	mu     sync.Mutex
	last   time.Time     // of the latest answer; guarded by mu
	widest time.Duration // guarded by mu
	err    error         // the latest failure; guarded by mu
}

// follow writes until stop is closed.
func (g *gap) follow(ctx context.Context, stop <-chan struct{}, w worker) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		err := w.Write(ctx)
		g.note(time.Now(), err)
		if err != nil && sleep(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

func (g *gap) note(now time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.err = err
		return
	}
	g.widest = max(g.widest, now.Sub(g.last))
	g.last = now
}

// restart forgets the widest gap and returns it.
func (g *gap) restart() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	widest := g.widest
	g.widest = 0
	return widest
}

// answeredSince says whether an answer has come later than 50 ms after a time: until then one may have
// been on its way.
func (g *gap) answeredSince(at time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last.After(at.Add(50 * time.Millisecond))
}

func (g *gap) lastError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
