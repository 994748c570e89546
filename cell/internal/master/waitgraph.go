package master

import (
	"iter"
	"maps"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// wait is an edge: a request waits for an owner that holds the lock in a conflicting mode, or has a
// conflicting request in front.
type wait struct {
	by     *tables.Waiter
	to     tables.LockOwner
	other  api.SessionID // the owner's session with the lock or request
	queued bool          // to has a request, not the lock
}

// waitGraph has the waits between owners. It stores nothing: searches read the current edges from the queues
// and the state.
//
// It has no edge that may end without the owner: none to a holder that is losing the lock or whose session is
// being ended; none to a handle that keeps a released lock, which a recall frees, or that this master does
// not know yet; none from or to a skipped or offered request.
//
// A new edge begins or ends at the owner of a request that just joined a queue: a granted one was already in
// front of the others. So joinQueue looks for cycles there. lookAgain finds edges that appear later, through
// a handle known again or a failed offer.
type waitGraph struct {
	epoch  *epoch
	queues *tables.Queues
	offers *offers
	known  func(namespace.Owner) *tables.OpenHandle
	next   session.Instant // when lookAgain looks next
}

// Bounds of one search. It does not find a cycle beyond them; a later search may.
const (
	maxWaits       = 1_000  // edges of one request: holders first, then requests in front
	maxSearch      = 50_000 // edges of one search
	maxCycleLength = 64     // steps of a cycle
	maxBroken      = 16     // requests that one search refuses
	maxLookAgain   = 20_000 // edges that the clock visits in one second
)

// waits yields the edges of a request. epoch.mu is held, and nothing may change meanwhile.
func (g *waitGraph) waits(w *tables.Waiter) iter.Seq[wait] {
	return func(yield func(wait) bool) {
		state := g.epoch.state()
		node, err := state.Tree.Resolve(w.Lock)
		if err != nil || w.Offered || g.queues.IsSkipped(w) || g.queues.Get(w.Key()) != w {
			return
		}
		if len(node.Holders) > 0 && node.Revoked == nil && node.Mode.Conflicts(w.Claim.Mode) {
			for _, h := range node.Holders[:min(len(node.Holders), maxWaits)] {
				s, lives := state.Sessions.Get(h.Session)
				handle := g.known(h.Owner)
				if !lives || s.Terminating != nil || handle == nil || handle.CachesLock {
					continue
				}
				if !yield(wait{by: w, to: tables.OwnerOf(h.Session, s.Principal, h.DeclaredOwner), other: h.Session}) {
					return
				}
			}
		}
		for _, ahead := range g.queues.ByName[w.Lock.Name] {
			if ahead == w {
				return
			}
			if ahead.Lock == w.Lock && !g.queues.IsSkipped(ahead) && ahead.Claim.Mode.Conflicts(w.Claim.Mode) &&
				!yield(wait{by: w, to: ahead.LockOwner(), other: ahead.Claim.Mutation.Session, queued: true}) {
				return
			}
		}
	}
}

// cycle returns a shortest cycle from w, or nil if it finds none within its bounds. It pauses, so edges may be
// gone: see holds. left is how many edges the search may still visit.
func (g *waitGraph) cycle(mu hold, w *tables.Waiter, left *int) []wait {
	start := w.LockOwner()
	reached := map[tables.LockOwner]wait{} // the edge that reached an owner
	covered := map[namespace.Ref]Ticket{}  // of writers whose edges were all visited: requests in front lead nowhere else
	for line := []*tables.Waiter{w}; len(line) > 0 && *left > 0; line = line[1:] {
		next := line[0]
		if next.Ticket.Before(covered[next.Lock]) {
			*left--
			continue
		}
		var found []wait
		seen, own := 0, false
		for edge := range g.waits(next) {
			if seen++; seen > maxWaits {
				break
			}
			if edge.to == start {
				if edge.queued && next.LockOwner() == start {
					own = true // two requests of one owner, one behind the other
					continue
				}
				found = pathTo(edge, start, reached)
				break
			}
			if _, twice := reached[edge.to]; !twice {
				reached[edge.to] = edge
				line = append(line, g.queues.OfOwner(edge.to)...)
			}
		}
		if found != nil && len(found) <= maxCycleLength {
			return found
		}
		if next.Claim.Mode == api.Exclusive && seen > 0 && seen <= maxWaits && !own {
			covered[next.Lock] = next.Ticket
		}
		*left -= 1 + seen
		mu.pause(g.queues.StepsOf(next.Lock.Name) + seen/16)
	}
	return nil
}

// pathTo returns the edges from start to last, which leads back to start.
func pathTo(last wait, start tables.LockOwner, reached map[tables.LockOwner]wait) []wait {
	path := []wait{last}
	for path[0].by.LockOwner() != start && len(path) <= maxCycleLength {
		path = append([]wait{reached[path[0].by.LockOwner()]}, path...)
	}
	return path
}

// holds reports whether a cycle still exists after pauses of the search. epoch.mu is held.
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

// breakCycles refuses requests until it finds no cycle with w: of each, the latest request that detects
// deadlocks. A cycle without such a request stays.
func (g *waitGraph) breakCycles(mu hold, w *tables.Waiter, left *int) {
	for range maxBroken {
		cycle := g.cycle(mu, w, left)
		if cycle == nil || !g.holds(cycle) {
			return
		}
		at := -1
		for i, edge := range cycle {
			if edge.by.Detects && (at < 0 || cycle[at].by.Ticket.Before(edge.by.Ticket)) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		g.refuse(append(append([]wait(nil), cycle[at:]...), cycle[:at]...))
	}
}

// refuse has the log refuse the first request of a cycle. epoch.mu is held.
func (g *waitGraph) refuse(cycle []wait) {
	w := cycle[0].by
	state := g.epoch.state()
	seen := sight{tree: state.Tree, principal: w.Who, all: state.PermitOperator(w.Who) == nil}
	r := &refusal.Refusal{Cause: refusal.WaitsForItself, Used: int64(len(cycle))}
	for _, edge := range cycle[:min(len(cycle), refusal.MaxCycle)] {
		step := refusal.Wait{Session: edge.by.Claim.Mutation.Session, For: edge.other}
		if seen.reads(edge.by.Lock.Name) {
			step.Path = g.epoch.path(edge.by.Lock.Name)
		}
		if seen.sees(edge.by.Who) {
			step.Owner = edge.by.Claim.DeclaredOwner
		}
		r.Cycle = append(r.Cycle, step)
	}
	w.Refusal = r
	g.epoch.reports.deadlock(w, len(cycle))
	g.offers.askLog(w)
}

// lookAgain searches once a second, from some detecting requests, for cycles that no new request closed.
func (g *waitGraph) lookAgain(mu hold, now session.Instant) {
	if len(g.queues.Detecting) == 0 || now < g.next {
		return
	}
	g.next = now.Add(time.Second)
	left := maxLookAgain
	for w := range maps.Keys(g.queues.Detecting) { // random order: each has its turn
		if left--; left < 0 {
			return
		}
		g.breakCycles(mu, w, &left)
	}
}
