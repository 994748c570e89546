package main

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// The output forms of locks --graph; -o json is a third.
const (
	graphText = "text"
	graphDOT  = "dot" // of Graphviz
)

// lockGraph is the wait-for graph of some locks. Its nodes are owners: sessions, or what several sessions of
// one principal declare together. It has the edges of the master's deadlock detection, but along a queue only
// those to the nearest in front: the others follow.
type lockGraph struct {
	Waits  []waitEdge   `json:"waits"`
	Cycles [][]waitEdge `json:"cycles"` // of those with common owners some may be missing
	More   int          `json:"more_waiters,omitempty"`
}

type waitEdge struct {
	graphParty
	Path     string     `json:"path"`
	WaitingS float64    `json:"waiting_s"`
	For      graphParty `json:"for"`    // the holder, or the request in front
	Queued   bool       `json:"queued"` // For is in front, not the holder

	waiting time.Duration
}

// graphParty is a holder or waiter, and its owner.
type graphParty struct {
	party
	Owner string `json:"owner,omitempty"`

	holder api.Holder
}

func newWaitEdge(by api.Waiter, to api.Holder, path string, queued bool) waitEdge {
	node := func(h api.Holder) graphParty { return graphParty{newParty(h), h.Owner, h} }
	return waitEdge{node(by.Holder), path, term.Seconds(by.Waiting), node(to), queued, by.Waiting}
}

// id names the owner behind a session's holding or request.
func (p graphParty) id() string {
	if p.Owner == "" {
		return p.Session
	}
	return fmt.Sprintf("%q of %s", p.Owner, p.Principal)
}

func (p graphParty) String() string { return whoIs(p.holder) }

func graphOf(locks iter.Seq2[client.LockInfo, error]) (*lockGraph, error) {
	g := &lockGraph{Waits: []waitEdge{}, Cycles: [][]waitEdge{}}
	for l, err := range locks {
		if err != nil {
			return nil, err
		}
		g.add(l)
	}
	g.findCycles()
	return g, nil
}

func (g *lockGraph) add(l client.LockInfo) {
	g.More += l.MoreWaiters
	for i, w := range l.Waiters {
		if w.Absent {
			continue
		}
		if l.Revoked == "" && l.Mode.Valid() && l.Mode.Conflicts(w.Mode) {
			for _, h := range l.Holders {
				if !h.Cached { // a cached lock is released on request
					g.Waits = append(g.Waits, newWaitEdge(w, h, l.Path, false))
				}
			}
		}
		for _, ahead := range slices.Backward(l.Waiters[:i]) {
			if ahead.Absent || !ahead.Mode.Conflicts(w.Mode) {
				continue
			}
			g.Waits = append(g.Waits, newWaitEdge(w, ahead.Holder, l.Path, true))
			if ahead.Mode == api.Exclusive {
				break
			}
		}
	}
}

func (g *lockGraph) findCycles() {
	from := map[string][]waitEdge{}
	for _, e := range g.Waits {
		if by := e.id(); by != e.For.id() || !e.Queued { // else two requests of one owner are queued together
			from[by] = append(from[by], e)
		}
	}
	left := map[string]bool{}
	on := map[string]int{} // an owner's position on the path, from 1
	var way []waitEdge
	var walk func(owner string)
	walk = func(owner string) {
		on[owner] = len(way) + 1
		for _, e := range from[owner] {
			next := e.For.id()
			way = append(way, e)
			switch {
			case on[next] > 0:
				g.Cycles = append(g.Cycles, slices.Clone(way[on[next]-1:]))
			case !left[next]:
				walk(next)
			}
			way = way[:len(way)-1]
		}
		on[owner], left[owner] = 0, true
	}
	for _, e := range g.Waits {
		if !left[e.id()] {
			walk(e.id())
		}
	}
}

func (g *globals) printLockGraph(out io.Writer, form string, locks iter.Seq2[client.LockInfo, error]) error {
	graph, err := graphOf(locks)
	if err != nil {
		return err
	}
	return g.output.Show(out, graph, func(p *term.Page) {
		if form == graphDOT {
			graph.drawDOT(p)
		} else {
			graph.drawText(p)
		}
	})
}

func (g *lockGraph) drawText(p *term.Page) {
	line := func(format string, args ...any) {
		p.Paragraph(term.Plain, term.Printable(fmt.Sprintf(format, args...)), "- ")
	}
	for _, cycle := range g.Cycles {
		steps := make([]string, len(cycle))
		for i, e := range cycle {
			steps[i] = fmt.Sprintf("%s waits for %s and %s", e.id(), e.Path, e.For.id())
		}
		line("DEADLOCK, if none of them gives up: %s", strings.Join(steps, ", "))
	}
	for _, e := range g.Waits {
		what := fmt.Sprintf("which %v holds", e.For)
		if e.Queued {
			what = fmt.Sprintf("behind %v", e.For)
		}
		line("%v waits for %s, %s, for %s", e.graphParty, e.Path, what, term.Roughly(e.waiting))
	}
	if g.More > 0 {
		line("%d more wait, and are not listed", g.More)
	} else if len(g.Waits) == 0 {
		line("nobody waits for anybody")
	}
}

func (g *lockGraph) drawDOT(p *term.Page) {
	inCycle := map[[2]string]bool{}
	for _, e := range slices.Concat(g.Cycles...) {
		inCycle[[2]string{e.id(), e.For.id()}] = true
	}
	p.Line("digraph waits {\n  node [shape=box];")
	drawn := map[string]bool{}
	node := func(n graphParty) string {
		id := n.id()
		if !drawn[id] {
			drawn[id] = true
			p.Line("  %s [label=%s];", dotQuote(id), dotQuote(id, whoseProcess(n.holder)))
		}
		return dotQuote(id)
	}
	for _, e := range g.Waits {
		from, to, style := node(e.graphParty), node(e.For), ""
		if e.Queued {
			style = ", style=dashed"
		}
		if inCycle[[2]string{e.id(), e.For.id()}] {
			style += ", color=red"
		}
		p.Line("  %s -> %s [label=%s%s];", from, to, dotQuote(e.Path), style)
	}
	p.Line("}")
}

// dotQuote quotes lines for DOT, where only the quote and the backslash are special.
func dotQuote(lines ...string) string {
	for i, line := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(term.Printable(line))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
