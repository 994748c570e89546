package master

import (
	"iter"
	"log/slog"
	"maps"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

func ownerOf(session api.SessionID, principal, declared string) lockOwner {
	if declared == "" {
		return lockOwner{session: session}
	}
	return lockOwner{principal: principal, declared: declared}
}

// lockOwner is for whom a request waits.
func (w *waiter) lockOwner() lockOwner {
	return ownerOf(w.claim.Mutation.Session, w.who, w.claim.DeclaredOwner)
}

// wait is an edge of the graph: a request waits for an owner, who holds the lock in a mode
// that conflicts with it, or has a request in front of it that does.
type wait struct {
	by     *waiter
	to     lockOwner
	other  api.SessionID // of that owner, which holds the lock or waits for it
	queued bool          // it only waits for it
}

// waitGraph says who waits for whom. Nothing of it is kept: the edges are read from the
// queues and the state when somebody asks, so they are those of this moment.
//
// It has no edge that may end without the owner's doing: to a holder from whom the lock is
// being taken, or whose session is being ended; to a handle that keeps a released lock,
// which is given back when it is asked for, or that this master does not know yet; and none
// from or to a request that is skipped in its queue, or that the lock is on its way to.
//
// A new edge begins or ends at the owner of a request that has just joined a queue: who is
// granted a lock was in front of those who wait for it before. So a cycle is looked for
// there (Locks.joinQueue). What becomes an edge later, because a handle is known again or
// an offer has failed, is found by the clock (lookAgain).
type waitGraph struct {
	epoch  *epoch
	queues *queues
	offers *offers
	known  func(namespace.Owner) *openHandle
	next   session.Instant // when lookAgain looks next
}

// Bounds of one search: an answer that is not found within these is not given, or found by
// a later search.
const (
	maxWaits       = 1_000  // edges of one request that are looked at: holders first, then those in front
	maxSearch      = 50_000 // edges that one search looks at
	maxCycleLength = 64     // steps of a cycle
	maxBroken      = 16     // requests that one search refuses
	maxLookAgain   = 20_000 // edges that the clock looks at in one second
)

// waits yields for whom a request waits. epoch.mu is held, and nothing may change
// meanwhile.
func (g *waitGraph) waits(w *waiter) iter.Seq[wait] {
	return func(yield func(wait) bool) {
		state := g.epoch.state()
		node, err := state.Tree.Resolve(w.lock)
		if err != nil || w.offered || g.queues.isSkipped(w) || g.queues.get(w.key()) != w {
			return
		}
		if len(node.Holders) > 0 && node.Revoked == nil && node.Mode.Conflicts(w.claim.Mode) {
			for _, h := range node.Holders[:min(len(node.Holders), maxWaits)] {
				s, lives := state.Sessions.Get(h.Session)
				handle := g.known(h.Owner)
				if !lives || s.Terminating != nil || handle == nil || handle.CachesLock {
					continue
				}
				if !yield(wait{by: w, to: ownerOf(h.Session, s.Principal, h.DeclaredOwner), other: h.Session}) {
					return
				}
			}
		}
		for _, ahead := range g.queues.byName[w.lock.Name] {
			if ahead == w {
				return
			}
			if ahead.lock == w.lock && !g.queues.isSkipped(ahead) && ahead.claim.Mode.Conflicts(w.claim.Mode) &&
				!yield(wait{by: w, to: ahead.lockOwner(), other: ahead.claim.Mutation.Session, queued: true}) {
				return
			}
		}
	}
}

// search looks for cycles; left is how many edges it may yet look at.
type search struct {
	graph *waitGraph
	left  int
}

// cycle returns a shortest cycle of waits that begins with w, or nil if it finds none within
// its bounds. epoch.mu is held, and released in between, so edges of it may be gone
// when it returns: see holds.
func (s *search) cycle(w *waiter) []wait {
	start := w.lockOwner()
	reached := map[lockOwner]wait{}       // by which edge an owner was reached
	covered := map[namespace.Ref]Ticket{} // of a writer whose edges were all looked at: those in front of it lead nowhere else
	for line := []*waiter{w}; len(line) > 0 && s.left > 0; line = line[1:] {
		next := line[0]
		if next.ticket.before(covered[next.lock]) {
			s.left--
			continue
		}
		var found []wait
		seen, own := 0, false
		for edge := range s.graph.waits(next) {
			if seen++; seen > maxWaits {
				break
			}
			if edge.to == start {
				if edge.queued && next.lockOwner() == start {
					own = true // two requests of one owner, one behind the other
					continue
				}
				found = pathTo(edge, start, reached)
				break
			}
			if _, twice := reached[edge.to]; !twice {
				reached[edge.to] = edge
				line = append(line, s.graph.queues.ofOwner(edge.to)...)
			}
		}
		if found != nil && len(found) <= maxCycleLength {
			return found
		}
		if next.claim.Mode == api.Exclusive && seen > 0 && seen <= maxWaits && !own {
			covered[next.lock] = next.ticket
		}
		s.left -= 1 + seen
		s.graph.epoch.mu.pause(s.graph.queues.stepsOf(next.lock.Name) + seen/16)
	}
	return nil
}

// pathTo returns the edges from start to the last, which leads back to it.
func pathTo(last wait, start lockOwner, reached map[lockOwner]wait) []wait {
	path := []wait{last}
	for path[0].by.lockOwner() != start && len(path) <= maxCycleLength {
		path = append([]wait{reached[path[0].by.lockOwner()]}, path...)
	}
	return path
}

// holds reports whether all edges of a cycle are there now: the search may have paused
// since it saw them. epoch.mu is held.
func (g *waitGraph) holds(cycle []wait) bool {
	for _, edge := range cycle {
		there := false
		for now := range g.waits(edge.by) {
			if there = now == edge; there {
				break
			}
		}
		if !there {
			return false
		}
	}
	return true
}

// breakCycles refuses requests until w is in no cycle that is found: of each cycle the
// one that came last, of those that want to be told. A cycle in which nobody wants that
// stays. epoch.mu is held, and released in between.
func (s *search) breakCycles(w *waiter) {
	for range maxBroken {
		cycle := s.cycle(w)
		if cycle == nil || !s.graph.holds(cycle) {
			return
		}
		at := -1
		for i, edge := range cycle {
			if edge.by.detects && (at < 0 || cycle[at].by.ticket.before(edge.by.ticket)) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		s.graph.refuse(append(append([]wait(nil), cycle[at:]...), cycle[:at]...))
	}
}

// refuse has the log answer the first request of a cycle, that it waits for itself.
// epoch.mu is held.
func (g *waitGraph) refuse(cycle []wait) {
	w := cycle[0].by
	state := g.epoch.state()
	seen := sight{tree: state.Tree, principal: w.who, all: state.PermitOperator(w.who) == nil}
	r := &refusal.Refusal{Cause: refusal.WaitsForItself, Used: int64(len(cycle))}
	for _, edge := range cycle[:min(len(cycle), refusal.MaxCycle)] {
		step := refusal.Wait{Session: edge.by.claim.Mutation.Session, For: edge.other}
		if seen.reads(edge.by.lock.Name) {
			step.Path = g.epoch.path(edge.by.lock.Name)
		}
		if seen.sees(edge.by.who) {
			step.Owner = edge.by.claim.DeclaredOwner
		}
		r.Cycle = append(r.Cycle, step)
	}
	w.refusal = r
	g.noteDeadlock(w, len(cycle))
	g.offers.askLog(w)
}

// joined breaks the cycles that a request has closed. Nobody wants to be told: nothing is
// looked at. epoch.mu is held, and released in between.
func (g *waitGraph) joined(w *waiter) {
	if len(g.queues.detecting) > 0 && !w.offered {
		s := search{graph: g, left: maxSearch}
		s.breakCycles(w)
	}
}

// lookAgain looks at some of the requests that want to be told, once a second, for cycles
// that no request closed when it came. epoch.mu is held, and released in between.
func (g *waitGraph) lookAgain(now session.Instant) {
	if len(g.queues.detecting) == 0 || now < g.next {
		return
	}
	g.next = now.Add(time.Second)
	s := search{graph: g, left: maxLookAgain}
	for w := range maps.Keys(g.queues.detecting) { // in no order: each has its turn
		if s.left <= 0 {
			return
		}
		s.left--
		s.breakCycles(w)
	}
}

// checkDetection returns why a request cannot ask to be told of a deadlock, nil if it can.
func checkDetection(state *raftfsm.State) error {
	if state.Level < raftfsm.DeadlockLevel {
		return raftfsm.NeedsLevel(raftfsm.DeadlockLevel, state.Level)
	}
	return nil
}

// noteDeadlock notes that a request waits for itself, in a cycle of so many steps, and is refused.
func (g *waitGraph) noteDeadlock(w *waiter, steps int) {
	if g.epoch.journal.admits(lockDeadlock, slog.LevelInfo) {
		g.epoch.journal.noteAsked(w.request, lockDeadlock, "a request for a lock waits for itself: it is refused",
			slog.String("path", g.epoch.path(w.lock.Name)), slog.String("session", w.claim.Mutation.Session.String()),
			slog.String("principal", w.who), slog.Int("steps", steps))
	}
}
