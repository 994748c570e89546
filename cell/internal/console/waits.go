package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const (
	maxDrawn  = 60 // drawn sessions
	maxColumn = 12 // of these, in one column
)

// Sizes of a drawing, in its own units.
const (
	boxWidth, boxHeight = 190, 40
	boxGapX, boxGapY    = 110, 16
)

// edge says that a session waits for a lock which another holds.
type edge struct {
	From, To api.Holder
	Path     string
	Waiting  time.Duration
}

type box struct {
	Who    api.Holder
	X, Y   int
	InRing bool // see waitGraph.isInRing
}

type arrow struct {
	Line   string // an SVG path
	InRing bool
}

type waitsPage struct {
	Edges         []edge         // the longest waits first, at most maxRows
	Rings         [][]api.Holder // one of each large group
	Boxes         []box
	Arrows        []arrow
	Width, Height int
	Undrawn       int // sessions
	Unlisted      int // edges
	More          int // further locks with waiters
	Whole         bool
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
	p.draw(g)
	return p
}

// draw places sessions in columns: at the left those that wait for no other, then their waiters, and so on.
func (p *waitsPage) draw(g *waitGraph) {
	sessions := make([]int, len(g.who))
	for i := range sessions {
		sessions[i] = len(g.locks) + i
	}
	slices.SortFunc(sessions, func(a, b int) int {
		return cmp.Or(cmp.Compare(g.level[a], g.level[b]), cmp.Compare(g.holder(a).Session, g.holder(b).Session))
	})
	rows := map[int]int{}
	at := map[int]box{} // by node
	for _, s := range sessions {
		x := g.level[s]
		if len(p.Boxes) == maxDrawn || rows[x] == maxColumn {
			p.Undrawn++
			continue
		}
		b := box{Who: g.holder(s), X: 1 + x*(boxWidth+boxGapX), Y: 1 + rows[x]*(boxHeight+boxGapY), InRing: g.isInRing(s)}
		p.Boxes, at[s] = append(p.Boxes, b), b
		rows[x]++
		p.Width, p.Height = max(p.Width, b.X+boxWidth+1), max(p.Height, b.Y+boxHeight+1)
	}
	p.drawArrows(g, at)
}

// drawArrows draws an arrow from each session to those for which it waits, one for each pair.
func (p *waitsPage) drawArrows(g *waitGraph, at map[int]box) {
	drawn := map[[2]int]bool{}
	for _, w := range g.waits {
		a, ok := at[w.session]
		if !ok {
			continue
		}
		for _, h := range g.out[w.lock] {
			b, ok := at[h]
			pair := [2]int{w.session, h}
			if !ok || drawn[pair] || h == w.session {
				continue
			}
			drawn[pair] = true
			x1, y1, x2, y2 := a.X, a.Y+boxHeight/2, b.X+boxWidth, b.Y+boxHeight/2
			middle1, middle2 := (x1+x2)/2, (x1+x2)/2
			if a.X <= b.X { // in a ring: the arrow leads back
				x1 = a.X + boxWidth
				middle1, middle2 = x1+70, x2+70
				p.Width = max(p.Width, x1+boxGapX)
			}
			p.Arrows = append(p.Arrows, arrow{Line: fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, middle1, y1, middle2, y2, x2+6, y2), InRing: g.areOfOneRing(w.session, h)})
		}
	}
}

// waitGraph is the graph of waits: sessions wait for locks, and locks for the sessions that hold them. The
// console makes it of the locks with the longest waits that the visitor may see, and of their listed holders
// and waiters. It omits free locks, the order of queues, and requests with a broken connection.
//
// Locks are nodes of their own, since clients choose the numbers of holders and waiters: so the work is in
// proportion to their sum, and not to their product.
type waitGraph struct {
	locks []client.LockInfo       // node i is locks[i];
	who   []api.Holder            // the nodes after them are sessions
	node  map[api.SessionID]int   // of a session
	out   [][]int                 // the nodes for which each waits
	waits []wait                  // the longest first
	group []int                   // by node: nodes that wait for each other have the same
	level []int                   // by node: the maximum of locks through which it waits; the same within a group
	large map[int][]api.SessionID // groups with at least two sessions
}

type wait struct {
	session, lock int // nodes
	took          time.Duration
}

func newWaitGraph(locks []client.LockInfo) *waitGraph {
	g := &waitGraph{locks: locks, node: map[api.SessionID]int{}, out: make([][]int, len(locks)), large: map[int][]api.SessionID{}}
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

// findGroups finds the groups and levels: the strongly connected components, by Tarjan's algorithm, which finds
// a group after all those for which it waits. A path has each lock at most once, so the recursion is at most
// twice as deep.
func (g *waitGraph) findGroups() {
	g.group, g.level = make([]int, len(g.out)), make([]int, len(g.out)) // groups begin with 1
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
	level, step := 0, 0
	if len(sessions) > 0 { // a session of the group may hold a lock of the group together with sessions outside
		step = 1
	}
	for _, node := range nodes {
		for _, next := range g.out[node] {
			if g.group[next] != group {
				level = max(level, g.level[next]+step)
			}
		}
	}
	for _, node := range nodes {
		g.level[node] = level
	}
	if len(sessions) > 1 {
		slices.Sort(sessions)
		g.large[group] = sessions
	}
}

// rings returns a ring of each large group: each session waits for the next, and the last for the first.
func (g *waitGraph) rings() (rings [][]api.Holder) {
	firsts := make([]api.SessionID, 0, len(g.large))
	for sessions := range maps.Values(g.large) {
		firsts = append(firsts, sessions[0])
	}
	slices.Sort(firsts)
	for _, id := range firsts {
		rings = append(rings, g.ring(g.node[id]))
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

// areOfOneRing reports whether two sessions wait for each other, perhaps through others.
func (g *waitGraph) areOfOneRing(a, b int) bool { return g.group[a] == g.group[b] && g.isInRing(a) }

// isInRing reports whether a session and another wait for each other, perhaps through others.
func (g *waitGraph) isInRing(session int) bool { return g.large[g.group[session]] != nil }
