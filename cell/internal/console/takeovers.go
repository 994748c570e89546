package console

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/chubbylock/chubby/api"
)

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
