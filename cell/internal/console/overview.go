package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// glance is the page with the cell at a glance.
type glance struct {
	Now      int64
	Status   client.Status
	Here     string // the replica that serves it
	Healthy  int
	Overview api.Overview
	Plots    []plot
}

// mostListed is how many waits and changes the page lists.
const mostListed = 10

func (c *Console) glance(ctx context.Context, v *visitor, _ *http.Request, p *page) error {
	g := &glance{Now: c.cfg.Wall(), Here: c.cfg.Replica}
	p.Content = g
	var asking sync.WaitGroup
	var statusErr, err error
	asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, maxStatusTime)
		defer cancel()
		g.Status, statusErr = v.cell.Status(ctx)
	})
	g.Overview, err = v.cell.Overview(ctx, mostListed)
	asking.Wait()
	if err = cmp.Or(err, statusErr); err != nil {
		return err
	}
	for _, r := range g.Status.Replicas {
		if r.Healthy {
			g.Healthy++
		}
	}
	g.Plots = v.series.add(c.cfg.Clock(), g.Overview)
	return nil
}

const (
	maxPoints  = 150                    // of a plot: five minutes, a point every two seconds
	minSpan    = time.Minute            // the minimum width of a plot
	minBetween = 900 * time.Millisecond // between two points, with any number of open pages
)

// series are a visitor's figures of the last minutes, of one master, while a page is open. Its zero value is ready.
type series struct {
	mu     sync.Mutex // guards the fields below
	epoch  api.Epoch
	points []point
}

type point struct {
	at      session.Instant
	counts  map[string]uint64
	waiters int
}

// add records the figures of an overview, if its viewer may see those of the whole cell, and returns the plots.
func (s *series) add(now session.Instant, o api.Overview) []plot {
	if !o.Whole {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != o.Epoch { // each master counts anew
		s.epoch, s.points = o.Epoch, nil
	}
	if n := len(s.points); n == 0 || now.Sub(s.points[n-1].at) >= minBetween {
		if n == maxPoints {
			s.points = slices.Delete(s.points, 0, 1)
		}
		s.points = append(s.points, point{at: now, counts: o.Counts, waiters: o.Backlog.Waiters})
	}
	var list []plot
	for _, rate := range []struct{ name, count string }{{"Calls", "calls"}, {"Changes", "commands"}, {"Locks granted after a wait", "grants"}, {"Leases extended", "leases"}} {
		list = append(list, draw(rate.name, "/s", s.points, func(before, now point) float64 {
			seconds := now.at.Sub(before.at).Seconds()
			return float64(now.counts[rate.count]-min(now.counts[rate.count], before.counts[rate.count])) / seconds
		}))
	}
	return append(list, draw("Requests waiting for locks", "", s.points, func(_, now point) float64 { return float64(now.waiters) }))
}

// plot is one figure over time, as SVG.
type plot struct {
	Name string
	Unit string
	Last string
	Most string
	Line string        // points of a polyline
	Area string        // points of the polygon below it
	Span time.Duration // of the whole width
}

// Size of a plot, in its own units.
const (
	plotWidth  = 300
	plotHeight = 64
	plotMargin = 4 // above and below
)

// draw draws one figure, from value, which is that between two points.
func draw(name, unit string, points []point, value func(before, now point) float64) plot {
	p := plot{Name: name, Unit: unit, Last: "–", Span: minSpan}
	end := points[len(points)-1].at
	for p.Span < end.Sub(points[0].at) {
		p.Span += minSpan
	}
	values, most := make([]float64, len(points)-1), 0.0
	for i := range values {
		values[i] = value(points[i], points[i+1])
		most = max(most, values[i])
		p.Last = figure(values[i], unit)
	}
	p.Most = figure(most, unit)
	left := func(at session.Instant) float64 { return plotWidth * (1 - float64(end.Sub(at))/float64(p.Span)) }
	var line []string
	for i, v := range values {
		line = append(line, fmt.Sprintf("%.1f,%.1f", left(points[i+1].at), plotHeight-plotMargin-(plotHeight-2*plotMargin)*v/max(most, 1)))
	}
	if len(line) > 1 {
		p.Line = strings.Join(line, " ")
		p.Area = fmt.Sprintf("%.1f,%d %s %d,%d", left(points[1].at), plotHeight-plotMargin, p.Line, plotWidth, plotHeight-plotMargin)
	}
	return p
}

// figure formats a number: small rates with a decimal.
func figure(v float64, unit string) string {
	if v > 0 && v < 10 && unit != "" {
		return fmt.Sprintf("%.1f", v)
	}
	return grouped(int64(math.Round(v)))
}

// takeoversPage shows each take-over of the master, phase by phase.
type takeoversPage struct {
	Now       int64
	Whole     bool // the visitor may see it
	Takeovers []timeline
}

// timeline is a take-over, from the beginning of its first phase.
type timeline struct {
	api.Takeover
	Replaced bool          // there was an earlier master
	Vacant   time.Duration // between the two
	Served   time.Duration // from its election until it served
	Rows     []timelineRow
}

type timelineRow struct {
	Name, About string
	Begin, Took time.Duration // Begin is since the timeline's
	Unfinished  bool
	Before      bool // before the master serves
}

func (c *Console) takeovers(ctx context.Context, v *visitor, _ *http.Request, p *page) error {
	o, err := v.cell.Overview(ctx, 1)
	if err != nil {
		return err
	}
	content := takeoversPage{Now: c.cfg.Wall(), Whole: o.Whole}
	for _, t := range o.Takeovers {
		content.Takeovers = append(content.Takeovers, timelineOf(t))
	}
	p.Content = content
	return nil
}

func timelineOf(t api.Takeover) timeline {
	line := timeline{Takeover: t}
	var begin time.Duration
	for _, p := range t.Phases {
		begin = min(begin, p.Begin)
		switch p.Name {
		case "election":
			line.Replaced = true
		case "leases":
			line.Served = p.End
		}
	}
	line.Vacant = line.Served - begin
	for _, p := range t.Phases {
		row := timelineRow{Begin: p.Begin - begin, Took: p.End - p.Begin, Unfinished: p.Unfinished, Before: p.End <= line.Served}
		row.Name, row.About = aboutPhase(p.Name)
		line.Rows = append(line.Rows, row)
	}
	return line
}

// aboutPhase describes a phase; for one that only newer masters know, its name.
func aboutPhase(name string) (title, about string) {
	words := map[string][2]string{
		"election":    {"Election", "from the last message of the master before"},
		"log":         {"Log and proof", "until the log was applied, and the new epoch in it, which a majority accepted"},
		"leases":      {"Leases", "until every session had its lease anew; then the master serves"},
		"first_lease": {"First lease", "until the first lease was extended"},
		"sessions":    {"Sessions back", "until all clients had returned, or their sessions had ended"},
		"caches":      {"Caches", "until no client used what it had cached before, for which changes wait"},
		"first_grant": {"First grant", "until a lock was granted"},
	}[name]
	return cmp.Or(words[0], name), words[1]
}
