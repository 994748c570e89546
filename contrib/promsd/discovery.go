package promsd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Discovery keeps the lists of some Jobs. It is an http.Handler and a prometheus.Collector, which may be
// used from several goroutines, also before and after Run.
type Discovery struct {
	cfg   Config
	lists []*list
	mux   *http.ServeMux
}

var (
	_ http.Handler         = (*Discovery)(nil)
	_ prometheus.Collector = (*Discovery)(nil)
)

// New returns a Discovery. It does not connect yet. The error is InvalidArgument, and names each field
// that is wrong.
func New(cfg Config) (*Discovery, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("promsd: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Discovery{cfg: cfg}
	for _, j := range cfg.Jobs {
		log := cfg.Logger.With("job", j.Name, "path", j.Path)
		if j.File != "" {
			log = log.With("file", j.File)
		}
		d.lists = append(d.lists, &list{job: j, log: log, changed: make(chan struct{}, 1)})
	}
	d.mux = d.routes()
	return d, nil
}

// Run follows the directories and keeps the files until ctx ends, and then returns nil; call it once. It
// goes on through fail-overs, lost sessions, and a cell that cannot be reached. An answer such as
// PermissionDenied is logged, and asked again each ten seconds. The error is InvalidArgument for a
// configuration of the client that cannot work, and Unavailable with the cause client.Closed if the
// Keeper was closed.
func (d *Discovery) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	faults := make(chan error, len(d.lists))
	for _, l := range d.lists {
		running.Go(func() { l.tend(ctx) })
		running.Go(func() {
			if err := l.follow(ctx, d.cfg.Sessions); err != nil {
				faults <- fmt.Errorf("job %s: %w", l.job.Name, err)
				cancel()
			}
		})
	}
	running.Wait()
	select {
	case err := <-faults:
		return err
	default:
		return nil
	}
}
