package chubbylock

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// term is the time from one grant of the lock until it is given up: of a claim,
// until the record is written, and of a leader after that.
type term struct {
	link *link
	lock *client.Lock
	// working is the context of all work of the term: it ends with the lock, or
	// when the elector stops leading.
	working context.Context //nolint:containedctx // it is the term's, not a call's
	stop    context.CancelCauseFunc
	over    chan struct{} // closed when the lock has been given up
	parting sync.Once

	mu      sync.Mutex // guards what follows
	last    resourcelock.LeaderElectionRecord
	leads   bool // the record has been written
	guarded bool // somebody says when the work has stopped
	guards  int  // who have not said so yet
	leaving bool // whoever says so last gives the lock up
	idle    chan struct{}
}

func newTerm(k *link, lock *client.Lock) *term {
	t := &term{link: k, lock: lock, over: make(chan struct{}), idle: make(chan struct{})}
	t.working, t.stop = context.WithCancelCause(lock.Context())
	close(t.idle)
	return t
}

// stands returns why the lock may not be relied on any more, nil while it may. It
// looks at the clock.
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

// held reports whether the lock may be relied on; the elector may have stopped.
func (t *term) held() bool { return t.lock.Err() == nil }

// begin makes a leader of a claim whose record has been written.
func (t *term) begin(rec resourcelock.LeaderElectionRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.leads = rec, true
}

// record returns what was written last, and whether that was in this term.
func (t *term) record() (last resourcelock.LeaderElectionRecord, leads bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.leads
}

// enter counts one who will say when its work has stopped. It reports whether
// there may be any work.
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

// leave takes one's word that its work has stopped. The last one gives the lock
// up, if the elector has left that to it.
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
		_ = t.release(context.Background()) // a failure leaves it to the lease
	}
}

// stopped is closed when nobody is known to work any more. After stop nobody
// begins to.
func (t *term) stopped() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idle
}

// quit is for an elector that has stopped leading without a release. It reports
// false if nobody has said, or will say, that the work has stopped: then the lock
// has to be left to the lease.
func (t *term) quit() bool {
	t.mu.Lock()
	guarded, idle := t.guarded, t.guards == 0
	t.leaving = true
	t.mu.Unlock()
	if guarded && idle {
		_ = t.release(context.Background()) // a failure leaves it to the lease
	}
	return guarded
}

// release gives the lock up: the work has stopped. The record of nobody is
// written first, if that is quick; the sequencer in the one before says the same.
// A lock that was lost needs no other word, but that one: so that is no error.
func (t *term) release(ctx context.Context) (err error) {
	t.parting.Do(func() {
		defer close(t.over)
		defer t.stop(client.LockReleased)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
		defer cancel()
		if last, leads := t.record(); leads && t.held() {
			rec := record{LeaderElectionRecord: vacant(last), Sequencer: t.lock.Sequencer().String()}
			quick, cancel := context.WithTimeout(ctx, partingTime/2)
			_ = t.link.write(quick, rec, t.lock) // it is for people
			cancel()
		}
		err = t.lock.Release(ctx)
		if errors.Is(err, api.LockLost) || errors.Is(err, api.SessionExpired) {
			err = nil
		}
	})
	return err
}

// abandon leaves the lock to the lease, as nobody knows whether the work under it
// has stopped. The session goes with it.
func (t *term) abandon() {
	t.parting.Do(func() {
		defer close(t.over)
		ctx, cancel := context.WithTimeout(context.Background(), partingTime)
		defer cancel()
		t.link.abandon(ctx)
	})
}
