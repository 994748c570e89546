package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// maxRecall bounds how long a TryAcquire or a Delete waits for a kept lock.
const maxRecall = time.Second

// maxRecalled bounds the holders of a recalled lock; one with more is not recalled.
const maxRecalled = 64

// recalls is the locks that a TryAcquire or Delete asks back from holders that may keep them unused (decision
// 22). A client acknowledges the event when it has given the lock back, after a short wait, or at once if the
// lock is in use. epoch.mu guards it.
type recalls struct {
	byLock    map[namespace.Ref]*recall
	bySession map[api.SessionID]map[*recall]uint64 // the event to acknowledge
}

// recall is one lock that is asked back.
type recall struct {
	lock  namespace.Ref
	until session.Instant // end of the wait
	of    []api.SessionID // the holders
	left  int             // those without an answer
	done  chan struct{}   // closed when the lock is free, or all holders have answered
}

func newRecalls() *recalls {
	return &recalls{byLock: map[namespace.Ref]*recall{}, bySession: map[api.SessionID]map[*recall]uint64{}}
}

// add records that a holder got that event.
func (t *recalls) add(r *recall, id api.SessionID, sequence uint64) {
	own := t.bySession[id]
	if own == nil {
		own = map[*recall]uint64{}
		t.bySession[id] = own
	}
	if own[r] == 0 {
		r.of, r.left = append(r.of, id), r.left+1
	}
	own[r] = sequence
}

// acknowledge records a session's acknowledgement, and returns its steps.
func (t *recalls) acknowledge(id api.SessionID, acked uint64) (steps int) {
	for r, sequence := range t.bySession[id] {
		if steps++; acked >= sequence {
			t.forget(r, id)
			if r.left--; r.left == 0 {
				t.end(r.lock)
			}
		}
	}
	return steps
}

func (t *recalls) forget(r *recall, id api.SessionID) {
	delete(t.bySession[id], r)
	if len(t.bySession[id]) == 0 {
		delete(t.bySession, id)
	}
}

// end ends the recall of a lock that is free or all of whose holders have answered.
func (t *recalls) end(lock namespace.Ref) {
	r := t.byLock[lock]
	if r == nil {
		return
	}
	delete(t.byLock, lock)
	for _, id := range r.of {
		t.forget(r, id)
	}
	close(r.done)
}

// awaitRecall asks for a kept, unused lock that conflicts with mode, and waits for it. asked says that
// holders were told.
func (p *publisher) awaitRecall(ctx context.Context, lock namespace.Ref, by namespace.Owner, mode api.LockMode) (asked bool) {
	if node, err := p.epoch.state().Tree.Resolve(lock); err != nil || len(node.Holders) == 0 { // most need no mutex
		return false
	}
	p.epoch.mu.LockPatient()
	r := p.recall(lock, by, mode)
	p.epoch.mu.Unlock()
	if r == nil {
		return false
	}
	timer := time.NewTimer(r.until.Sub(p.epoch.clock()))
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	case <-ctx.Done():
	case <-p.epoch.ctx.Done():
	}
	return true
}

// recall asks a lock's holders for it once. It returns nil if there is nothing to wait for: an earlier
// request waits, or a holder does not keep the lock. epoch.mu is held, with pauses.
func (p *publisher) recall(lock namespace.Ref, by namespace.Owner, mode api.LockMode) *recall {
	p.epoch.mu.pause(p.queues.stepsOf(lock.Name))
	node, err := p.epoch.state().Tree.Resolve(lock)
	if err != nil || len(node.Holders) == 0 || len(node.Holders) > maxRecalled || node.Revoked != nil || !node.Mode.Conflicts(mode) ||
		p.queues.firstAhead(lock, mode) != nil {
		return nil
	}
	open := p.handles.onNode[lock]
	for _, holder := range node.Holders {
		if h := open[holder.Owner]; h == nil || h.Owner == by || !h.CachesLock || !h.Events.Has(api.EventConflictingLock) {
			return nil
		}
	}
	if r := p.recalls.byLock[lock]; r != nil {
		return r
	}
	r := &recall{lock: lock, until: p.epoch.clock().Add(maxRecall), done: make(chan struct{})}
	for _, holder := range node.Holders {
		if sequence := p.postTo(holder.Owner, lock, api.EventConflictingLock, &Event{Generation: node.Lock, Recall: true}); sequence != 0 {
			p.recalls.add(r, holder.Session, sequence)
		}
	}
	if r.left == 0 {
		return nil
	}
	p.recalls.byLock[lock] = r
	return r
}
