package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// tellConflicts posts an event to holders that want it, when requests wait because of them. A holder that
// just got the lock, or whose handle is new here, learns of the first waiter; the others learn of each new
// one. Call it after changes of the holders or the queue. tried is a refused request, which counts as a
// waiter that leaves at once; it may be nil.
//
// A quiet request goes only to holders that may keep the lock unused, as a recall that programs do not see.
func (p *publisher) tellConflicts(mu hold, lock namespace.Ref, tried *waiter) {
	if tried == nil && len(p.queues.byName[lock.Name]) == 0 { // mostly
		return
	}
	node, err := p.epoch.state().Tree.Resolve(lock)
	if err != nil {
		return
	}
	var news askers
	looked := false
	for _, holder := range node.Holders {
		steps := 1
		if h := p.handles.onNode[lock][holder.Owner]; h != nil && h.wantsConflicts() {
			if !looked { // most holders do not want the event, and the queue may be long
				news, looked = p.queues.asking(lock, node.Mode, tried), true
				steps += p.queues.stepsOf(lock.Name)
			}
			p.tellConflictsTo(h, node.Lock, news)
		}
		mu.pause(steps)
	}
}

// tellConflictsTo tells one holder. epoch.mu is held.
func (p *publisher) tellConflictsTo(h *openHandle, generation api.Generation, news askers) {
	list := news.unknown
	if !h.told {
		list = news.first[:]
	}
	for _, w := range list {
		if w == nil || !h.hearsOf(w) {
			continue
		}
		//mutant: p.postTo(h.Owner, h.Node, api.EventConflictingLock, &Event{Generation: generation, Recall: w.quiet})
		p.postTo(h.Owner, h.Node, api.EventConflictingLock, &Event{Generation: generation, Explanation: w.claim.Reason, Recall: w.quiet})
		if !h.told {
			break
		}
	}
	h.told = true
}

// maxRecall bounds how long a TryAcquire or a Delete waits for a kept lock.
const maxRecall = time.Second

// maxRecalled bounds the holders of a recalled lock; one with more is not recalled.
const maxRecalled = 64

// awaitRecall asks for a kept, unused lock that conflicts with mode, and waits for it. asked says that
// holders were told.
func (p *publisher) awaitRecall(ctx context.Context, lock namespace.Ref, by namespace.Owner, mode api.LockMode) (asked bool) {
	if node, err := p.epoch.state().Tree.Resolve(lock); err != nil || len(node.Holders) == 0 { // most need no mutex
		return false
	}
	mu := p.epoch.mu.holdPatiently()
	r := p.recall(mu, lock, by, mode)
	mu.end()
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
// request waits, or a holder does not keep the lock.
func (p *publisher) recall(mu hold, lock namespace.Ref, by namespace.Owner, mode api.LockMode) *recall {
	mu.pause(p.queues.stepsOf(lock.Name))
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
	if r := p.recalls[lock]; r != nil {
		return r
	}
	r := &recall{lock: lock, until: p.epoch.clock().Add(maxRecall), done: make(chan struct{})}
	for _, holder := range node.Holders {
		sequence := p.postTo(holder.Owner, lock, api.EventConflictingLock, &Event{Generation: node.Lock, Recall: true})
		if sequence == 0 {
			continue
		}
		box := p.boxes.byID[holder.Session]
		if box.recalled == nil {
			box.recalled = map[*recall]uint64{}
		}
		if box.recalled[r] == 0 {
			r.of = append(r.of, box)
			r.left++
		}
		box.recalled[r] = sequence
	}
	if r.left == 0 {
		return nil
	}
	p.recalls[lock] = r
	return r
}
