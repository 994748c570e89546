package master

import (
	"log/slog"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// remover removes ephemeral nodes that no session has open (Chubby §2.3). Each removal is a change (decision
// 21) of its own: a client that does not drop a node delays only that node. One goroutine does all; a node is
// in waiting until no cache has it. epoch.mu guards it.
type remover struct {
	epoch     *epoch
	queues    *tables.Queues
	coherence *coherence

	dying   []namespace.Ref   // not begun
	waiting map[*removal]bool // sessions that may cache them were told
	again   []*removal        // those to look at again, after a clearing has ended
	ready   []*removal        // in no cache
	wake    chan struct{}     // full while there may be work
}

type removal struct {
	node  namespace.Ref
	ch    *tables.Change
	began session.Instant
	late  bool // its long wait was reported
}

// Bounds of the remover's work.
const (
	// maxRemovals bounds the nodes that wait for caches. One session cannot cache as many, so only several
	// silent ones can delay others' nodes.
	maxRemovals = 4 * tables.MaxCopies
	// beginAtOnce bounds the removals begun in one hold of the mutex.
	beginAtOnce = 256
	// removeAgain is the wait after a failed Remove.
	removeAgain = 100 * time.Millisecond
)

func newRemover(e *epoch, q *tables.Queues, c *coherence) *remover {
	return &remover{epoch: e, queues: q, coherence: c, waiting: map[*removal]bool{}, wake: make(chan struct{}, 1)}
}

// add takes over dying nodes.
func (r *remover) add(nodes ...namespace.Ref) {
	if len(nodes) > 0 {
		r.dying = append(r.dying, nodes...)
		r.wakeUp()
	}
}

// awaitClearing makes a removal wait for its next clearing, or marks it as ready.
func (r *remover) awaitClearing(one *removal) {
	if cl := one.ch.NextClearing(); cl != nil {
		cl.Ended = append(cl.Ended, func() {
			if len(r.again) == 0 { // a clearing may end very many waits
				r.wakeUp()
			}
			r.again = append(r.again, one)
		})
		return
	}
	delete(r.waiting, one)
	r.ready = append(r.ready, one)
}

func (r *remover) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// runRemover is the remover's goroutine. It ends with the epoch.
func (r *remover) runRemover() {
	slow := time.NewTicker(slowChange)
	defer slow.Stop()
	for {
		if r.awaitFlush() != nil {
			return
		}
		batch := r.nextRemovals()
		if len(batch) > 0 {
			r.proposeRemoval(batch)
			continue
		}
		select {
		case <-r.wake:
		case <-slow.C:
			r.reportSlowRemovals()
		case <-r.epoch.ctx.Done():
			return
		}
	}
}

// awaitFlush waits, if a node is dying, until every client has dropped what an earlier master let it cache.
func (r *remover) awaitFlush() error {
	r.epoch.mu.Lock()
	flush := r.coherence.takeoverFlush()
	var names []api.Name
	if dying := r.dying; len(dying) > 0 {
		names = append(names, dying[0].Name)
	}
	r.epoch.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	//mutant: r.epoch.mu.Lock(); defer r.epoch.mu.Unlock(); r.coherence.copyset.Flush = nil; _ = flush; return nil
	return r.coherence.awaitCaches(r.epoch.ctx, flush, names)
}

// nextRemovals begins removals, and returns those that no cache delays, as many as fit in one command.
func (r *remover) nextRemovals() []*removal {
	mu := r.epoch.mu.hold()
	defer mu.end()
	if r.coherence.takeoverFlush() != nil {
		return nil // these nodes were added since; awaitFlush waits next
	}
	for _, one := range r.again[:min(len(r.again), maxSteps)] {
		//mutant: delete(r.waiting, one); r.ready = append(r.ready, one)
		r.awaitClearing(one)
	}
	if r.again = r.again[min(len(r.again), maxSteps):]; len(r.again) > 0 {
		r.wakeUp()
	} else {
		r.again = nil
	}
	//mutant: for range min(len(r.dying), beginAtOnce, 1-len(r.waiting)) {
	for range min(len(r.dying), beginAtOnce, maxRemovals-len(r.waiting)) {
		one := &removal{node: r.dying[0], began: r.epoch.clock()}
		r.dying = r.dying[1:]
		one.ch = r.coherence.beginChange(mu, 0, namesTouched(one.node.Name))
		r.waiting[one] = true
		r.awaitClearing(one)
	}
	if len(r.dying) > 0 && len(r.waiting) < maxRemovals {
		r.wakeUp() // the others begin next, even if all of these have to wait
	}
	batch := firstPart(r.ready, r.queues.Claims, func(one *removal) int { return raftfsm.Size(one.node) })
	if r.ready = r.ready[len(batch):]; len(r.ready) == 0 {
		r.ready = nil
	}
	return batch
}

// proposeRemoval proposes to remove nodes that are in no cache, and then makes their names cacheable.
func (r *remover) proposeRemoval(batch []*removal) {
	nodes := make([]namespace.Ref, len(batch))
	for i, one := range batch {
		nodes[i] = one.node
		r.epoch.reports.metrics.ChangeWaited(r.epoch.clock().Sub(one.began))
	}
	_, err := r.epoch.commit(r.epoch.ctx, raftfsm.Command{Remove: &raftfsm.Remove{Nodes: nodes}}, func() {
		for _, one := range batch {
			r.coherence.endChange(one.ch)
		}
	})
	if err == nil || r.epoch.ctx.Err() != nil {
		return
	}
	r.epoch.mu.Lock()
	r.add(nodes...)
	r.epoch.mu.Unlock()
	again := time.NewTimer(removeAgain)
	defer again.Stop()
	select {
	case <-again.C:
	case <-r.epoch.ctx.Done():
	}
}

// reportSlowRemovals logs, once a node, clients that delay a removal too long, and cuts them off if that is
// the policy.
func (r *remover) reportSlowRemovals() {
	var names []api.Name
	late, now := map[*tables.Clearing]bool{}, r.epoch.clock()
	mu := r.epoch.mu.hold()
	for one := range r.waiting {
		mu.pause(1)
		if now.Sub(one.ch.Since) < slowChange {
			continue
		}
		if !one.late {
			one.late = true
			names = append(names, one.node.Name)
		}
		for _, cl := range one.ch.Clearings {
			if !cl.IsDone() {
				late[cl] = true
			}
		}
	}
	some := &tables.Change{}
	for cl := range late {
		mu.pause(1)
		if len(some.Clearings) < maxLate {
			some.Clearings = append(some.Clearings, cl)
		}
		if r.coherence.slowClient > 0 {
			r.coherence.cutOff(mu, &tables.Change{Clearings: []*tables.Clearing{cl}}, cl.Name, now)
		}
	}
	mu.end()
	if len(names) > 0 {
		r.epoch.reports.journal.say(slog.LevelWarn, "ephemeral nodes are not removed yet, for clients do not drop what they have cached",
			slog.String("event", "change_waits"), slog.Int("nodes", len(names)), slog.String("path", r.epoch.path(names[0])), slog.String("clients", r.coherence.laggards(some)))
	}
}

// maxLate bounds the clearings whose clients a log line names.
const maxLate = 8
