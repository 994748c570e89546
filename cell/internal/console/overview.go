package console

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
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
