package chubbylock

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// term is the time from a grant of the lock until its release. It is a claim until the record is
// written, and then a leadership.
type term struct {
	keeper *client.Keeper
	file   *client.Handle
	lock   *client.Lock
	// working is the context of all work: it ends with the lock, or when the elector stops
	// leading.
	working context.Context //nolint:containedctx // it is the term's, not a call's
	stop    context.CancelCauseFunc
	over    chan struct{} // closed when the lock has been released
	parting sync.Once

	mu      sync.Mutex // guards what follows
	last    resourcelock.LeaderElectionRecord
	leads   bool // the record has been written
	guarded bool // there has been guarded work, which reports when it has stopped
	guards  int  // how many pieces of guarded work have not stopped
	leaving bool // the last piece of guarded work that stops releases the lock
	idle    chan struct{}
}

func newTerm(keeper *client.Keeper, file *client.Handle, lock *client.Lock) *term {
	t := &term{keeper: keeper, file: file, lock: lock, over: make(chan struct{}), idle: make(chan struct{})}
	t.working, t.stop = context.WithCancelCause(lock.Context())
	close(t.idle)
	return t
}

// stands returns why the lock can no longer be relied on, or nil. It reads the clock.
func (t *term) stands() error {
	err := t.lock.Err()
	if err == nil && t.working.Err() != nil {
		err = context.Cause(t.working)
	}
	if err == nil {
		return nil
	}
	return &api.Error{Code: api.LockLost, Op: "lead", Path: t.lock.Path(), Err: err,
		Message: "this term is over; the elector has to end, and may then be run again"}
}

// held reports whether the lock can be relied on; the elector may have stopped.
func (t *term) held() bool { return t.lock.Err() == nil }

// begin notes that the record has been written: the claim has become a
// leadership.
func (t *term) begin(rec resourcelock.LeaderElectionRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.leads = rec, true
}

// record returns the record written last, and whether it was written under this lock.
func (t *term) record() (last resourcelock.LeaderElectionRecord, leads bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.leads
}

// write writes a record, if the lock is still held.
func (t *term) write(ctx context.Context, rec record) error {
	contents, err := rec.encode()
	if err == nil {
		_, err = t.file.SetContents(ctx, contents, client.IfSequencer(t.lock.Sequencer()))
	}
	return err
}

// enter counts a piece of guarded work, which must call leave when it has stopped. It reports false
// if no work may begin.
func (t *term) enter() bool {
	stands := t.stands() == nil
	t.mu.Lock()
	defer t.mu.Unlock()
	if !stands || !t.leads || t.leaving || t.working.Err() != nil {
		return false
	}
	if t.guards == 0 {
		t.idle = make(chan struct{})
	}
	t.guarded = true
	t.guards++
	return true
}

// leave notes that a piece of guarded work has stopped. The last one releases the lock if the
// elector has stopped leading.
func (t *term) leave() {
	t.mu.Lock()
	t.guards--
	last := t.guards == 0
	if last {
		close(t.idle)
	}
	leaving := t.leaving
	t.mu.Unlock()
	if last && leaving {
		_ = t.release(context.Background()) // if it fails, the lock ends with the lease
	}
}

// stopped returns a channel that is closed when all guarded work has stopped. After that none
// begins.
func (t *term) stopped() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idle
}

// quit is for an elector that has stopped leading without a release. It reports false if no work
// was guarded: then it is unknown whether the work has stopped, and the lock must expire with the
// lease.
func (t *term) quit() bool {
	t.mu.Lock()
	guarded, idle := t.guarded, t.guards == 0
	t.leaving = true
	t.mu.Unlock()
	if guarded && idle {
		_ = t.release(context.Background()) // if it fails, the lock ends with the lease
	}
	return guarded
}

// release releases the lock after the work has stopped. It first writes the empty record, if that
// is quick; the sequencer in the old record is invalid in any case. A lost lock is not an error.
func (t *term) release(ctx context.Context) (err error) {
	t.parting.Do(func() {
		defer close(t.over)
		defer t.stop(client.LockReleased)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
		defer cancel()
		if last, leads := t.record(); leads && t.held() {
			rec := record{LeaderElectionRecord: vacant(last), Sequencer: t.lock.Sequencer().String()}
			quick, cancel := context.WithTimeout(ctx, partingTime/2)
			_ = t.write(quick, rec) // only people read it
			cancel()
		}
		err = t.lock.Release(ctx)
		if errors.Is(err, api.LockLost) || errors.Is(err, api.SessionExpired) {
			err = nil
		}
	})
	return err
}

// abandon leaves the lock to expire with the lease, because it is unknown whether the work under it
// has stopped. The session ends with it.
func (t *term) abandon() {
	t.parting.Do(func() {
		defer close(t.over)
		ctx, cancel := context.WithTimeout(context.Background(), partingTime)
		defer cancel()
		t.keeper.Abandon(ctx)
	})
}
