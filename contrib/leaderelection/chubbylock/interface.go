package chubbylock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var _ resourcelock.Interface = (*Lock)(nil)

// Create claims the leadership, as Update does: Get has created the file.
func (l *Lock) Create(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, rec)
}

// Update claims the leadership, or renews it, if the record names this candidate. It releases the
// leadership if the record names no leader.
//
// A claim takes the lock, unless Get has, and fails with LockHeld if another candidate has it. It
// writes the record under the lock's sequencer. A renewal checks the lock by the local clock, and
// fails with LockLost if the lock can no longer be relied on. It writes only if more than RenewTime
// has changed. A release waits until the guarded work has stopped (Guard), and fails with
// DeadlineExceeded or Cancelled if ctx ends before; then the lock is released as soon as the work
// stops.
func (l *Lock) Update(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	t := l.current()
	switch {
	case rec.HolderIdentity == "" && t == nil:
		return nil // it is released
	case rec.HolderIdentity == "":
		return l.resign(ctx, t)
	case rec.HolderIdentity != l.cfg.Identity:
		return l.errorf(api.InvalidArgument, "the record names %q; a candidate writes only of itself, %q", rec.HolderIdentity, l.cfg.Identity)
	case t == nil:
		if t, err = l.try(ctx); err != nil {
			return err
		}
	}
	last, leads := t.record()
	if err := t.stands(); err != nil {
		l.drop(ctx, t, leads)
		return err
	}
	if leads && renews(rec, last) {
		return nil
	}
	err = t.write(ctx, record{LeaderElectionRecord: rec, Sequencer: t.lock.Sequencer().String()})
	if err == nil {
		err = t.stands() // writing may have taken long
	}
	if err != nil {
		l.drop(ctx, t, leads)
		return fmt.Errorf("write the record of the election: %w", err)
	}
	l.begin(t, rec)
	return nil
}

// begin notes that this candidate leads, or has changed its record.
func (l *Lock) begin(t *term, rec resourcelock.LeaderElectionRecord) {
	_, led := t.record()
	t.begin(rec)
	l.mu.Lock()
	manager := l.manager
	l.mu.Unlock()
	if !led && manager != nil {
		manager.begin(t)
	}
}

// drop releases a lock under which this candidate has not led.
func (l *Lock) drop(ctx context.Context, t *term, leads bool) {
	if !leads {
		_ = t.release(ctx) // if it fails, the lock ends with the lease
		l.forget(t)
	}
}

// resign releases the leadership. If the lock was lost, the leadership remains until the elector
// reports that it has stopped leading.
func (l *Lock) resign(ctx context.Context, t *term) error {
	held := t.held()
	t.stop(&api.Error{Code: api.NotHeld, Op: "lead", Path: l.cfg.Path, Message: "the leadership was given up"})
	if !held {
		return nil
	}
	select {
	case <-t.stopped():
	case <-ctx.Done():
		return l.late(ctx, "the work has not stopped yet; the lock is given up when it does")
	}
	err := t.release(ctx)
	l.forget(t)
	return err
}

// Get returns the record of the election, if it is true: see the package comment. The lock's holder
// gets its own record at once. Another candidate gets the record of a leader that Get has not
// returned before. If there is none, Get waits for the lock, until ctx ends, and returns an empty
// record when this candidate has the lock; a Create or an Update should follow. If there has never
// been a leader, the error is NotFound of package k8s.io/apimachinery/pkg/api/errors; all others
// are as in package client.
//
// When the lock of this candidate's leadership was lost, Get returns the empty record at once, and
// claims fail.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	rec, err := l.look(ctx)
	switch {
	case errors.Is(err, api.NotFound) && l.current() != nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Group: "chubby", Resource: "leader"}, l.cfg.Path)
	case err != nil:
		return nil, nil, err
	}
	l.mu.Lock()
	l.looks++
	looks := l.looks
	l.mu.Unlock()
	// The elector considers a leader alive if these bytes have changed.
	raw, err := json.Marshal(rec)
	return &rec.LeaderElectionRecord, fmt.Appendf(raw, " %d", looks), err
}

// look returns the record that Get returns.
func (l *Lock) look(ctx context.Context) (record, error) {
	t := l.current()
	if t == nil {
		return l.campaign(ctx)
	}
	last, leads := t.record()
	if t.stands() == nil {
		if leads {
			return record{LeaderElectionRecord: last, Sequencer: t.lock.Sequencer().String()}, nil
		}
		l.drop(ctx, t, false)
		return record{}, l.errorf(api.InvalidArgument, "Get had the lock for this candidate, and neither Create nor Update followed; coordinated elections are not supported")
	}
	if leads {
		return record{LeaderElectionRecord: vacant(last)}, nil
	}
	l.drop(ctx, t, false)
	return l.campaign(ctx)
}
