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
