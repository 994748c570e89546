package console

import (
	"cmp"
	"context"
	"fmt"
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
