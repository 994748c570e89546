package console

import (
	"context"
	"net/http"
	"sync"

	"github.com/chubbylock/chubby/client"
)

// glance is the page with the cell at a glance.
type glance struct {
	Now      int64
	Status   client.Status
	Here     string // the replica that serves it
	Healthy  int
	Overview client.Overview
	Plots    []plot
}

// mostListed is how many waits and changes the page lists.
const mostListed = 10

func (c *Console) glance(ctx context.Context, v *visitor, _ *http.Request) (string, page, error) {
	g := glance{Now: c.cfg.Wall(), Here: c.cfg.Replica}
	var asking sync.WaitGroup
	var statusErr, err error
	asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, maxStatusTime)
		defer cancel()
		g.Status, statusErr = v.cell.Status(ctx)
	})
	g.Overview, err = v.cell.Overview(ctx, mostListed)
	asking.Wait()
	if err == nil {
		err = statusErr
	}
	if err != nil {
		return "glance", page{Title: "Overview", Nav: "glance", Every: 2, Content: g}, err
	}
	for _, r := range g.Status.Replicas {
		if r.Healthy {
			g.Healthy++
		}
	}
	c.sawOverview(v, g.Overview)
	v.series.add(c.cfg.Clock(), g.Overview)
	g.Plots = v.series.plots()
	return "glance", page{Title: "Overview", Nav: "glance", Every: 2, Content: g}, nil
}
