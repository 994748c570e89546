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

// A graph of who waits for whom: sessions, and the locks for which one waits that another holds. The cell has no such graph: it is made
// of the locks that somebody has waited for longest, as the visitor may see them. A lock that nobody holds, and the order of a queue,
// are not in it.

const (
	maxDrawn  = 60 // sessions that are drawn
	maxColumn = 12 // of them one below the other
)

// Sizes of what is drawn, in units of its own.
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

// box is a session as it is drawn.
type box struct {
	Who    api.Holder
	X, Y   int
	InRing bool // it waits for itself, by way of others
}

// arrow is an edge as it is drawn.
type arrow struct {
	Line   string // of an SVG path
	Label  string
	X, Y   int // of the label
	InRing bool
}

// waitsPage shows who waits for whom.
type waitsPage struct {
	Edges         []edge
	Rings         [][]api.Holder // sessions each of which waits for the next, and the last for the first
	Boxes         []box
	Arrows        []arrow
	Width, Height int
	Undrawn       int // sessions
	More          int // locks that others wait for, besides
	Whole         bool
}

func (c *Console) waits(ctx context.Context, v *visitor, _ *http.Request) (string, page, error) {
	p := page{Title: "Waits", Nav: "waits", Every: 3}
	o, err := v.cell.Overview(ctx, api.MaxListed)
	if err != nil {
		return "waits", p, err
	}
	c.sawOverview(v, o)
	content := graphOf(o.Waits)
	content.More, content.Whole = o.MoreWaits, o.Whole
	p.Content = content
	return "waits", p, nil
}

// graphOf makes the graph of some locks.
func graphOf(locks []client.LockInfo) *waitsPage {
	g := &waitsPage{}
	for _, l := range locks {
		for _, w := range l.Waiters {
			for _, h := range l.Holders {
				g.Edges = append(g.Edges, edge{From: w.Holder, To: h, Path: l.Path, Waiting: w.Waiting})
			}
		}
	}
	slices.SortStableFunc(g.Edges, func(a, b edge) int { return cmp.Compare(b.Waiting, a.Waiting) })
	g.findRings()
	g.draw()
	g.Edges = g.Edges[:min(len(g.Edges), maxRows)]
	return g
}

// blockers returns for whom each session waits.
func (g *waitsPage) blockers() (out map[api.SessionID][]api.SessionID, who map[api.SessionID]api.Holder) {
	out, who = map[api.SessionID][]api.SessionID{}, map[api.SessionID]api.Holder{}
	for _, e := range g.Edges {
		if !slices.Contains(out[e.From.Session], e.To.Session) {
			out[e.From.Session] = append(out[e.From.Session], e.To.Session)
		}
		who[e.From.Session], who[e.To.Session] = e.From, e.To
	}
	return out, who
}

// findRings looks for sessions that wait for themselves, by way of others. Of those that share sessions it finds some.
func (g *waitsPage) findRings() {
	out, who := g.blockers()
	const (
		entered = 1
		left    = 2
	)
	state := map[api.SessionID]int{}
	var way []api.SessionID
	var walk func(id api.SessionID)
	walk = func(id api.SessionID) {
		state[id] = entered
		way = append(way, id)
		for _, next := range out[id] {
			switch state[next] {
			case 0:
				walk(next)
			case entered:
				var ring []api.Holder
				for _, one := range way[slices.Index(way, next):] {
					ring = append(ring, who[one])
				}
				g.Rings = append(g.Rings, ring)
			}
		}
		way, state[id] = way[:len(way)-1], left
	}
	for _, id := range slices.Sorted(maps.Keys(out)) {
		if state[id] == 0 {
			walk(id)
		}
	}
}

// draw places sessions in columns: those that wait for nobody at the left, who waits for them next to them, and so on.
func (g *waitsPage) draw() {
	out, who := g.blockers()
	column := map[api.SessionID]int{}
	for range len(who) { // as often as the longest way could be; rings end it
		changed := false
		for id, blockers := range out {
			for _, b := range blockers {
				if want := column[b] + 1; want > column[id] && want <= len(who) && !g.inOneRing(id, b) {
					column[id], changed = want, true
				}
			}
		}
		if !changed {
			break
		}
	}
	rows := map[int]int{}
	at := map[api.SessionID]int{} // an index of Boxes
	for _, id := range slices.SortedFunc(maps.Keys(who), func(a, b api.SessionID) int {
		return cmp.Or(cmp.Compare(column[a], column[b]), cmp.Compare(a, b))
	}) {
		x := column[id]
		if len(g.Boxes) == maxDrawn || rows[x] == maxColumn {
			g.Undrawn++
			continue
		}
		at[id] = len(g.Boxes)
		b := box{Who: who[id], X: 1 + x*(boxWidth+boxGapX), Y: 1 + rows[x]*(boxHeight+boxGapY), InRing: g.inRing(id)}
		g.Boxes = append(g.Boxes, b)
		rows[x]++
		g.Width, g.Height = max(g.Width, b.X+boxWidth+1), max(g.Height, b.Y+boxHeight+1)
	}
	g.drawArrows(at)
}

// drawArrows draws an arrow from each session to those for whom it waits, at most one for two sessions.
func (g *waitsPage) drawArrows(at map[api.SessionID]int) {
	drawn := map[[2]api.SessionID]bool{}
	for _, e := range g.Edges {
		from, ok := at[e.From.Session]
		to, also := at[e.To.Session]
		pair := [2]api.SessionID{e.From.Session, e.To.Session}
		if !ok || !also || drawn[pair] {
			continue
		}
		drawn[pair] = true
		a, b := g.Boxes[from], g.Boxes[to]
		x1, y1, x2, y2 := a.X, a.Y+boxHeight/2, b.X+boxWidth, b.Y+boxHeight/2
		if a.X <= b.X { // in a ring: it leads back
			x1, x2 = a.X+boxWidth, b.X+boxWidth
			g.Width = max(g.Width, x1+boxGapX)
			g.Arrows = append(g.Arrows, arrow{Line: fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, x1+70, y1, x2+70, y2, x2+6, y2), InRing: true})
			continue
		}
		middle := (x1 + x2) / 2
		g.Arrows = append(g.Arrows, arrow{Line: fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, middle, y1, middle, y2, x2+6, y2), InRing: g.inOneRing(e.From.Session, e.To.Session)})
	}
}

func (g *waitsPage) inRing(id api.SessionID) bool {
	return slices.ContainsFunc(g.Rings, func(ring []api.Holder) bool { return holds(ring, id) })
}

func (g *waitsPage) inOneRing(a, b api.SessionID) bool {
	return slices.ContainsFunc(g.Rings, func(ring []api.Holder) bool { return holds(ring, a) && holds(ring, b) })
}

func holds(ring []api.Holder, id api.SessionID) bool {
	return slices.ContainsFunc(ring, func(h api.Holder) bool { return h.Session == id })
}
