package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// edge says that a session waits for a lock which another holds.
type edge struct {
	From, To api.Holder
	Path     string
	Waiting  time.Duration
}

type waitsPage struct {
	Edges    []edge         // the longest waits first, at most maxRows
	Rings    [][]api.Holder // one of each large group
	Unlisted int            // edges
	More     int            // further locks with waiters
	Whole    bool
}

func waits(ctx context.Context, v *visitor, _ *http.Request, p *page) error {
	o, err := v.cell.Overview(ctx, api.MaxListed)
	if err != nil {
		return err
	}
	content := graphOf(o.Waits)
	content.More, content.Whole = o.MoreWaits, o.Whole
	p.Content = content
	return nil
}

func graphOf(locks []client.LockInfo) *waitsPage {
	g := newWaitGraph(locks)
	p := &waitsPage{Rings: g.rings()}
	for _, w := range g.waits {
		holders := g.out[w.lock]
		listed := holders[:min(len(holders), maxRows-len(p.Edges))]
		for _, h := range listed {
			p.Edges = append(p.Edges, edge{From: g.holder(w.session), To: g.holder(h), Path: locks[w.lock].Path, Waiting: w.took})
		}
		p.Unlisted += len(holders) - len(listed)
	}
	return p
}

// waitGraph is the graph of waits: sessions wait for locks, and locks for the sessions that hold them. The
// console makes it of the locks with the longest waits that the visitor may see, and of their listed holders
// and waiters. It omits free locks, the order of queues, and requests with a broken connection.
//
// Locks are nodes of their own, since clients choose the numbers of holders and waiters: so the work is in
// proportion to their sum, and not to their product.
type waitGraph struct {
	locks []client.LockInfo     // node i is locks[i];
	who   []api.Holder          // the nodes after them are sessions
	node  map[api.SessionID]int // of a session
	out   [][]int               // the nodes for which each waits
	waits []wait                // the longest first
	group []int                 // by node: nodes that wait for each other have the same
	large map[int]api.SessionID // the first session of each group with at least two
}

type wait struct {
	session, lock int // nodes
	took          time.Duration
}

func newWaitGraph(locks []client.LockInfo) *waitGraph {
	g := &waitGraph{locks: locks, node: map[api.SessionID]int{}, out: make([][]int, len(locks)), large: map[int]api.SessionID{}}
	for i, l := range locks {
		if len(l.Holders) == 0 {
			continue
		}
		for _, h := range l.Holders {
			g.out[i] = append(g.out[i], g.session(h))
		}
		for _, w := range l.Waiters {
			if !w.Absent {
				s := g.session(w.Holder)
				g.out[s] = append(g.out[s], i)
				g.waits = append(g.waits, wait{s, i, w.Waiting})
			}
		}
	}
	slices.SortStableFunc(g.waits, func(a, b wait) int { return cmp.Compare(b.took, a.took) })
	g.findGroups()
	return g
}

func (g *waitGraph) session(h api.Holder) int {
	i, ok := g.node[h.Session]
	if !ok {
		i = len(g.out)
		g.node[h.Session] = i
		g.who, g.out = append(g.who, h), append(g.out, nil)
	}
	return i
}

func (g *waitGraph) isSession(node int) bool { return node >= len(g.locks) }

func (g *waitGraph) holder(node int) api.Holder { return g.who[node-len(g.locks)] }

// findGroups finds the groups: the strongly connected components, by Tarjan's algorithm. A path has each lock
// at most once, so the recursion is at most twice as deep.
func (g *waitGraph) findGroups() {
	g.group = make([]int, len(g.out)) // groups begin with 1
	order, low := make([]int, len(g.out)), make([]int, len(g.out))
	var open []int // nodes without a group yet
	visited, groups := 0, 0
	var visit func(node int)
	visit = func(node int) {
		visited++
		order[node], low[node] = visited, visited
		open = append(open, node)
		for _, next := range g.out[node] {
			if order[next] == 0 {
				visit(next)
				low[node] = min(low[node], low[next])
			} else if g.group[next] == 0 {
				low[node] = min(low[node], order[next])
			}
		}
		if low[node] == order[node] {
			groups++
			first := len(open) - 1
			for open[first] != node {
				first--
			}
			g.finish(groups, open[first:])
			open = open[:first]
		}
	}
	for node := range g.out {
		if order[node] == 0 {
			visit(node)
		}
	}
}

func (g *waitGraph) finish(group int, nodes []int) {
	var sessions []api.SessionID
	for _, node := range nodes {
		g.group[node] = group
		if g.isSession(node) {
			sessions = append(sessions, g.holder(node).Session)
		}
	}
	if len(sessions) > 1 {
		g.large[group] = slices.Min(sessions)
	}
}

// rings returns a ring of each large group: each session waits for the next, and the last for the first.
func (g *waitGraph) rings() (rings [][]api.Holder) {
	for _, first := range slices.Sorted(maps.Values(g.large)) {
		rings = append(rings, g.ring(g.node[first]))
	}
	return rings
}

// ring returns a shortest ring with a session.
func (g *waitGraph) ring(first int) []api.Holder {
	holds := map[int]bool{} // locks that first holds
	for i := range g.locks {
		holds[i] = g.group[i] == g.group[first] && slices.Contains(g.out[i], first)
	}
	before := map[int]int{first: first}
	for queue := []int{first}; len(queue) > 0; queue = queue[1:] {
		node := queue[0]
		for _, next := range g.out[node] {
			if node != first && holds[next] && g.isSession(node) {
				var ring []api.Holder
				for ; node != first; node = before[node] {
					if g.isSession(node) {
						ring = append(ring, g.holder(node))
					}
				}
				return append([]api.Holder{g.holder(first)}, reversed(ring)...)
			}
			if _, seen := before[next]; !seen && g.group[next] == g.group[first] {
				before[next] = node
				queue = append(queue, next)
			}
		}
	}
	return nil // no other session waits for it in turn
}
