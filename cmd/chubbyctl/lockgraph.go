package main

import (
	"fmt"
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
	waits  []waitEdge
	cycles [][]waitEdge // of those with common owners some may be missing
	more   int          // waiters that are not listed
}

type waitEdge struct {
	by, to  api.Holder // to: the holder, or the request in front
	path    string
	queued  bool // to is in front, not the holder
	waiting time.Duration
}

func (g *lockGraph) fields() term.Fields {
	cycles := make([][]term.Fields, len(g.cycles))
	for i, cycle := range g.cycles {
		cycles[i] = term.Each(cycle, edgeFields)
	}
	return term.Fields{"waits", term.Each(g.waits, edgeFields), "cycles", cycles}.With("more_waiters", g.more)
}

func edgeFields(e waitEdge) term.Fields {
	return append(party(e.by).With("owner", e.by.Owner), "path", e.path, "waiting_s", term.Seconds(e.waiting),
		"for", party(e.to).With("owner", e.to.Owner), "queued", e.queued)
}

// ownerOf names the owner behind a session's holding or request.
func ownerOf(h api.Holder) string {
	if h.Owner == "" {
		return h.Session.String()
	}
	return fmt.Sprintf("%q of %s", h.Owner, h.Principal)
}

func graphOf(locks iter.Seq2[client.LockInfo, error]) (*lockGraph, error) {
	g := &lockGraph{}
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
	g.more += l.MoreWaiters
	for i, w := range l.Waiters {
		if w.Absent {
			continue
		}
		if l.Revoked == "" && l.Mode.Valid() && l.Mode.Conflicts(w.Mode) {
			for _, h := range l.Holders {
				if !h.Cached { // a cached lock is released on request
					g.waits = append(g.waits, waitEdge{w.Holder, h, l.Path, false, w.Waiting})
				}
			}
		}
		for _, ahead := range slices.Backward(l.Waiters[:i]) {
			if ahead.Absent || !ahead.Mode.Conflicts(w.Mode) {
				continue
			}
			g.waits = append(g.waits, waitEdge{w.Holder, ahead.Holder, l.Path, true, w.Waiting})
			if ahead.Mode == api.Exclusive {
				break
			}
		}
	}
}

func (g *lockGraph) findCycles() {
	from := map[string][]waitEdge{}
	for _, e := range g.waits {
		if by := ownerOf(e.by); by != ownerOf(e.to) || !e.queued { // else two requests of one owner are queued together
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
			next := ownerOf(e.to)
			way = append(way, e)
			switch {
			case on[next] > 0:
				g.cycles = append(g.cycles, slices.Clone(way[on[next]-1:]))
			case !left[next]:
				walk(next)
			}
			way = way[:len(way)-1]
		}
		on[owner], left[owner] = 0, true
	}
	for _, e := range g.waits {
		if by := ownerOf(e.by); !left[by] {
			walk(by)
		}
	}
}

func (g *lockGraph) drawText(p *term.Page) {
	line := func(format string, args ...any) {
		p.Paragraph(term.Plain, term.Printable(fmt.Sprintf(format, args...)), "- ")
	}
	for _, cycle := range g.cycles {
		steps := make([]string, len(cycle))
		for i, e := range cycle {
			steps[i] = fmt.Sprintf("%s waits for %s and %s", ownerOf(e.by), e.path, ownerOf(e.to))
		}
		line("DEADLOCK, if none of them gives up: %s", strings.Join(steps, ", "))
	}
	for _, e := range g.waits {
		what := fmt.Sprintf("which %s holds", whoIs(e.to))
		if e.queued {
			what = "behind " + whoIs(e.to)
		}
		line("%s waits for %s, %s, for %s", whoIs(e.by), e.path, what, term.Roughly(e.waiting))
	}
	if g.more > 0 {
		line("%d more wait, and are not listed", g.more)
	} else if len(g.waits) == 0 {
		line("nobody waits for anybody")
	}
}

func (g *lockGraph) drawDOT(p *term.Page) {
	inCycle := map[[2]string]bool{}
	for _, e := range slices.Concat(g.cycles...) {
		inCycle[[2]string{ownerOf(e.by), ownerOf(e.to)}] = true
	}
	p.Line("digraph waits {\n  node [shape=box];")
	drawn := map[string]bool{}
	node := func(h api.Holder) string {
		id := ownerOf(h)
		if !drawn[id] {
			drawn[id] = true
			p.Line("  %s [label=%s];", dotQuote(id), dotQuote(id, whoseProcess(h)))
		}
		return dotQuote(id)
	}
	for _, e := range g.waits {
		from, to, style := node(e.by), node(e.to), ""
		if e.queued {
			style = ", style=dashed"
		}
		if inCycle[[2]string{ownerOf(e.by), ownerOf(e.to)}] {
			style += ", color=red"
		}
		p.Line("  %s -> %s [label=%s%s];", from, to, dotQuote(e.path), style)
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
