package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// watchedChanges is how many changes the row of watchers makes.
const watchedChanges = 11

// errNotMeasured is what a row returns for a system that does not have what it measures.
var errNotMeasured = errors.New("the system does not have what the row measures")

// measureWatchers measures how long it takes until all watchers, each with a connection of its own,
// have been told of one change, counted from before the change.
func measureWatchers(ctx context.Context, o options, s system) (_ sample, err error) {
	n, ok := s.(notifier)
	if !ok {
		return sample{}, errNotMeasured
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("not all watchers were told within three minutes"))
	defer cancel()
	told, armed := newTally(o.watchers), newTally(o.watchers)
	closeAll, err := openMany(ctx, o.watchers, func(ctx context.Context) (closer, error) { return n.Watch(ctx, told.add, armed.add) })
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx))) }()
	if err != nil {
		return sample{}, err
	}
	change, closeChanger, err := n.Changer(ctx)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, closeChanger(ctx)) }()
	var times []time.Duration
	for i := range watchedChanges {
		began := time.Now()
		if err := change(ctx); err != nil {
			return sample{}, err
		}
		last, err := told.await(ctx)
		if err != nil {
			return sample{}, err
		}
		if _, err := armed.await(ctx); err != nil {
			return sample{}, err
		}
		if i > 0 { // the first warms up
			times = append(times, last.Sub(began))
		}
	}
	return sampleOf(times), nil
}

// tally counts reports up to a number, again and again.
type tally struct {
	full    int
	reached chan time.Time // when the last of them came; holds one

	mu    sync.Mutex
	count int // guarded by mu
}

func newTally(full int) *tally { return &tally{full: full, reached: make(chan time.Time, 1)} }

func (t *tally) add() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count++; t.count == t.full {
		t.count = 0
		select {
		case t.reached <- now:
		default: // nobody waits any more
		}
	}
}

// await waits until the number is reached.
func (t *tally) await(ctx context.Context) (time.Time, error) {
	select {
	case last := <-t.reached:
		return last, nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return time.Time{}, fmt.Errorf("%d of %d reports: %w", t.count, t.full, context.Cause(ctx))
	}
}
