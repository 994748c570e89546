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

// Create claims the leadership, as Update does: after Get there is a file.
func (l *Lock) Create(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, rec)
}

// Update claims the leadership, or renews it, if the record names this candidate,
// and gives it up if the record names nobody.
//
// A claim takes the lock, unless Get did already, and fails with LockHeld if
// another has it; the record is written under the lock's sequencer. A renewal
// looks at the lock, by the local clock, and fails with LockLost once that may not
// be relied on; it is written only if more has changed than RenewTime. Giving up
// waits until the guarded work has stopped (Guard), and fails with
// DeadlineExceeded or Cancelled if ctx ends before; then the lock is given up as
// soon as the work stops.
func (l *Lock) Update(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	t := l.current()
	switch {
	case rec.HolderIdentity == "" && t == nil:
		return nil // it is given up
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
	err = t.link.write(ctx, record{LeaderElectionRecord: rec, Sequencer: t.lock.Sequencer().String()}, t.lock)
	if err == nil {
		err = t.stands() // it may have taken long
	}
	if err != nil {
		l.drop(ctx, t, leads)
		return fmt.Errorf("write the record of the election: %w", err)
	}
	l.begin(t, rec)
	return nil
}

// begin takes note that this candidate leads, or has changed its record.
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

// drop gives a lock back under which nobody has led.
func (l *Lock) drop(ctx context.Context, t *term, leads bool) {
	if !leads {
		_ = t.release(ctx) // a failure leaves it to the lease
		l.forget(t)
	}
}

// resign gives the leadership up. A lock that was lost stays with the term until
// the elector says that it has stopped leading.
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

// Get returns the record of the election, as it is true: see the package comment.
// The lock's holder gets its own, at once. Anybody else gets that of a leader that
// Get has not returned before, or waits, until ctx ends, for the lock, and holds
// it when Get returns the record of nobody; a Create or an Update is to follow.
// If nobody has ever led, the error is NotFound in the sense of package
// k8s.io/apimachinery/pkg/api/errors; all others are as in package client.
//
// In the term of a lock that was lost, it returns the record of nobody, at once,
// and claims fail.
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
	// The elector takes a record to be alive if these bytes are others than before.
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
