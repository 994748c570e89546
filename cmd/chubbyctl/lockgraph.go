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
	edges []lockWaitEdge
	more  int // waiting requests that are not listed
}

type lockWaitEdge struct {
	by      api.Holder
	to      api.Holder // the holder, or the request in front
	path    string
	waiting time.Duration
	queued  bool // to is in front, not the holder
}

func graphOf(locks iter.Seq2[client.LockInfo, error]) (g lockGraph, err error) {
	for l, err := range locks {
		if err != nil {
			return g, err
		}
		g.add(l)
	}
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
					g.edges = append(g.edges, lockWaitEdge{by: w.Holder, to: h, path: l.Path, waiting: w.Waiting})
				}
			}
		}
		for _, ahead := range slices.Backward(l.Waiters[:i]) {
			if ahead.Absent || !ahead.Mode.Conflicts(w.Mode) {
				continue
			}
			g.edges = append(g.edges, lockWaitEdge{by: w.Holder, to: ahead.Holder, path: l.Path, waiting: w.Waiting, queued: true})
			if ahead.Mode == api.Exclusive {
				break
			}
		}
	}
}

// lockOwner names the owner behind a session's holding or request.
func lockOwner(h api.Holder) string {
	if h.Owner == "" {
		return h.Session.String()
	}
	return fmt.Sprintf("%q of %s", h.Owner, h.Principal)
}

// cycles returns cycles of the graph, as chains of edges. Of cycles with common owners it may omit some.
func (g *lockGraph) cycles() (found [][]lockWaitEdge) {
	from := map[string][]lockWaitEdge{}
	var owners []string
	for _, e := range g.edges {
		by := lockOwner(e.by)
		if from[by] == nil {
			owners = append(owners, by)
		}
		if by != lockOwner(e.to) || !e.queued { // else two requests of one owner are queued together
			from[by] = append(from[by], e)
		}
	}
	left := map[string]bool{}
	on := map[string]int{} // an owner's position on the path, from 1
	var way []lockWaitEdge
	var walk func(owner string)
	walk = func(owner string) {
		on[owner] = len(way) + 1
		for _, e := range from[owner] {
			next := lockOwner(e.to)
			way = append(way, e)
			switch {
			case on[next] > 0:
				found = append(found, slices.Clone(way[on[next]-1:]))
			case !left[next]:
				walk(next)
			}
			way = way[:len(way)-1]
		}
		on[owner], left[owner] = 0, true
	}
	for _, owner := range owners {
		if !left[owner] {
			walk(owner)
		}
	}
	return found
}

type graphFields struct {
	Waits  []waitEdgeFields   `json:"waits"`
	Cycles [][]waitEdgeFields `json:"cycles"`
	More   int                `json:"more_waiters,omitempty"`
}

type waitEdgeFields struct {
	graphParty
	Path     string     `json:"path"`
	WaitingS float64    `json:"waiting_s"`
	For      graphParty `json:"for"`
	Queued   bool       `json:"queued"`
}

// graphParty is a holder or waiter, and its owner.
type graphParty struct {
	party
	Owner string `json:"owner,omitempty"`
}

func newGraphParty(h api.Holder) graphParty { return graphParty{newParty(h), h.Owner} }

func newWaitEdgeFields(edges []lockWaitEdge) []waitEdgeFields {
	list := make([]waitEdgeFields, 0, len(edges))
	for _, e := range edges {
		list = append(list, waitEdgeFields{graphParty: newGraphParty(e.by), Path: e.path, WaitingS: term.Seconds(e.waiting), For: newGraphParty(e.to), Queued: e.queued})
	}
	return list
}

func (g *globals) printLockGraph(out io.Writer, form string, locks iter.Seq2[client.LockInfo, error]) error {
	graph, err := graphOf(locks)
	if err != nil {
		return err
	}
	switch cycles := graph.cycles(); {
	case g.json():
		f := graphFields{Waits: newWaitEdgeFields(graph.edges), Cycles: [][]waitEdgeFields{}, More: graph.more}
		for _, cycle := range cycles {
			f.Cycles = append(f.Cycles, newWaitEdgeFields(cycle))
		}
		return g.output.Print(out, f)
	case form == graphDOT:
		return graph.printDOT(out, cycles)
	default:
		return graph.printText(out, cycles)
	}
}

func (g *lockGraph) printText(out io.Writer, cycles [][]lockWaitEdge) error {
	var b strings.Builder
	style := term.StyleOf(out)
	line := func(text string) { b.WriteString(style.Wrap(term.Printable(text), "- ") + "\n") }
	for _, cycle := range cycles {
		steps := make([]string, len(cycle))
		for i, e := range cycle {
			steps[i] = fmt.Sprintf("%s waits for %s and %s", lockOwner(e.by), e.path, lockOwner(e.to))
		}
		line("DEADLOCK, if none of them gives up: " + strings.Join(steps, ", "))
	}
	for _, e := range g.edges {
		what := "which " + whoIs(e.to) + " holds"
		if e.queued {
			what = "behind " + whoIs(e.to)
		}
		line(fmt.Sprintf("%s waits for %s, %s, for %s", whoIs(e.by), e.path, what, term.Roughly(e.waiting)))
	}
	if g.more > 0 {
		line(fmt.Sprintf("%d more wait, and are not listed", g.more))
	}
	if b.Len() == 0 {
		line("nobody waits for anybody")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (g *lockGraph) printDOT(out io.Writer, cycles [][]lockWaitEdge) error {
	inCycle := map[[2]string]bool{}
	for _, cycle := range cycles {
		for _, e := range cycle {
			inCycle[[2]string{lockOwner(e.by), lockOwner(e.to)}] = true
		}
	}
	var b strings.Builder
	b.WriteString("digraph waits {\n  node [shape=box];\n")
	drawn := map[string]bool{}
	node := func(h api.Holder) string {
		id := lockOwner(h)
		if !drawn[id] {
			drawn[id] = true
			fmt.Fprintf(&b, "  %s [label=%s];\n", dotQuote(id), dotQuote(id, whoseProcess(h)))
		}
		return dotQuote(id)
	}
	for _, e := range g.edges {
		from, to, style := node(e.by), node(e.to), ""
		if e.queued {
			style = ", style=dashed"
		}
		if inCycle[[2]string{lockOwner(e.by), lockOwner(e.to)}] {
			style += ", color=red"
		}
		fmt.Fprintf(&b, "  %s -> %s [label=%s%s];\n", from, to, dotQuote(e.path), style)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// dotQuote quotes lines for DOT, where only the quote and the backslash are special.
func dotQuote(lines ...string) string {
	for i, line := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(term.Printable(line))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
