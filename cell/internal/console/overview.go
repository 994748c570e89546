package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
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
	v.series.add(c.cfg.Clock(), g.Overview)
	g.Plots = v.series.plots()
	return nil
}

const (
	maxPoints  = 150                    // of a plot: five minutes, a point every two seconds
	minSpan    = time.Minute            // the minimum width of a plot
	minBetween = 900 * time.Millisecond // between two points, with any number of open pages
)

// series are a visitor's figures of the last minutes, while a page is open. Its zero value is ready.
type series struct {
	mu     sync.Mutex // guards points
	points []point
}

type point struct {
	at      session.Instant
	epoch   uint64
	counts  map[string]uint64
	waiters int
}

// add records the figures of an overview, if its viewer may see those of the whole cell.
func (s *series) add(now session.Instant, o api.Overview) {
	if !o.Whole {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.points); n > 0 && now.Sub(s.points[n-1].at) < minBetween {
		return
	}
	if len(s.points) == maxPoints {
		s.points = append(s.points[:0], s.points[1:]...)
	}
	s.points = append(s.points, point{at: now, epoch: uint64(o.Epoch), counts: o.Counts, waiters: o.Backlog.Waiters})
}

// plot is one figure over time, as SVG.
type plot struct {
	Name  string
	Unit  string
	Last  string
	Most  string
	Lines []string // points of polylines; a line ends with its master
	Area  []string
	Span  time.Duration // of the whole width
}

// Size of a plot, in its own units.
const (
	plotWidth  = 300
	plotHeight = 64
)

func (s *series) plots() []plot {
	s.mu.Lock()
	points := append([]point(nil), s.points...)
	s.mu.Unlock()
	if len(points) == 0 {
		return nil
	}
	var list []plot
	for _, rate := range []struct{ name, count string }{{"Calls", "calls"}, {"Changes", "commands"}, {"Locks granted after a wait", "grants"}, {"Leases extended", "leases"}} {
		list = append(list, draw(rate.name, "/s", points, func(before, now point) float64 {
			seconds := now.at.Sub(before.at).Seconds()
			return float64(now.counts[rate.count]-min(now.counts[rate.count], before.counts[rate.count])) / seconds
		}))
	}
	return append(list, draw("Requests waiting for locks", "", points, func(_, now point) float64 { return float64(now.waiters) }))
}

// draw draws one figure. A value between two points exists only if both are of one epoch.
func draw(name, unit string, points []point, value func(before, now point) float64) plot {
	p := plot{Name: name, Unit: unit, Last: "–", Most: "–", Span: minSpan}
	for p.Span < points[len(points)-1].at.Sub(points[0].at) {
		p.Span += minSpan
	}
	values, most := make([]float64, len(points)), 0.0
	for i := range points {
		values[i] = math.NaN()
		if i > 0 && points[i].epoch == points[i-1].epoch {
			values[i] = value(points[i-1], points[i])
			most = max(most, values[i])
			p.Last = figure(values[i], unit)
		}
	}
	p.Most = figure(most, unit)
	end := points[len(points)-1].at
	var line []string
	finish := func() {
		if len(line) > 1 {
			text := strings.Join(line, " ")
			first, _, _ := strings.Cut(line[0], ",")
			last, _, _ := strings.Cut(line[len(line)-1], ",")
			p.Lines = append(p.Lines, text)
			p.Area = append(p.Area, fmt.Sprintf("%s,%d %s %s,%d", first, plotHeight-4, text, last, plotHeight-4))
		}
		line = nil
	}
	for i, v := range values {
		if math.IsNaN(v) {
			finish()
			continue
		}
		x := plotWidth * (1 - float64(end.Sub(points[i].at))/float64(p.Span))
		y := plotHeight - 4 - (plotHeight-8)*v/max(most, 1)
		if x >= 0 {
			line = append(line, fmt.Sprintf("%.1f,%.1f", x, y))
		}
	}
	finish()
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

// timeline is a drawn take-over.
type timeline struct {
	api.Takeover
	Replaced bool          // there was an earlier master
	Vacant   time.Duration // between the two
	Served   time.Duration // from its election until it served
	Whole    time.Duration // the whole drawing
	Rows     []timelineRow
	ServedX  int // where it begins to serve, in units of the drawing
}

type timelineRow struct {
	Name, About string
	Begin, Took time.Duration // Begin is since the timeline's
	Unfinished  bool
	Before      bool // before the master serves
	X, Width    int
}

// Size of a phase's drawing, in its own units.
const (
	timelineWidth = 600
	leastBar      = 3
)

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

// timelineOf draws a take-over, from the beginning of its first phase to the end of its last.
func timelineOf(t api.Takeover) timeline {
	line := timeline{Takeover: t}
	var begin, end time.Duration
	for _, p := range t.Phases {
		begin, end = min(begin, p.Begin), max(end, p.End)
		switch p.Name {
		case "election":
			line.Replaced = true
		case "leases":
			line.Served = p.End
		}
	}
	line.Vacant = line.Served - begin
	line.Whole = max(end-begin, 1)
	at := func(d time.Duration) int { return int(float64(timelineWidth) * float64(d-begin) / float64(line.Whole)) }
	line.ServedX = at(line.Served)
	for _, p := range t.Phases {
		row := timelineRow{Begin: p.Begin - begin, Took: p.End - p.Begin, Unfinished: p.Unfinished, Before: p.End <= line.Served, X: min(at(p.Begin), timelineWidth-leastBar)}
		row.Width = min(max(at(p.End)-row.X, leastBar), timelineWidth-row.X)
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
