package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/clientprom"
)

// programNames are the programs that use the cell. Each has metrics of its own, as if it were a process.
func programNames() []string { return []string{"billing", "frontend", "reports"} }

// program is one of them.
type program struct {
	name, address string
	config        client.Config
	server        *http.Server
}

// programs are all of them, and what they do.
type programs struct {
	list []*program
	ctx  context.Context //nolint:containedctx // of what they do
	end  context.CancelFunc

	wait     sync.WaitGroup
	sessions []*client.Client
	lost     atomic.Int64 // sessions
}

// startPrograms opens their sessions, and begins the load.
func startPrograms(ctx context.Context, c *cell) (*programs, error) {
	a := &programs{}
	a.ctx, a.end = context.WithCancel(ctx)
	for i, name := range programNames() {
		p := &program{name: name, address: at(programPort + i), config: c.config(name)}
		metrics, registry := clientprom.New(), prometheus.NewRegistry()
		prometheus.WrapRegistererWith(prometheus.Labels{"cell": cellName}, registry).MustRegister(metrics)
		p.config.Meter = metrics.Meter()
		listener, err := net.Listen("tcp", p.address)
		if err != nil {
			a.stop()
			return nil, err
		}
		p.server = &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: 5 * time.Second}
		a.list = append(a.list, p)
		a.wait.Go(func() { _ = p.server.Serve(listener) })
	}
	if err := errors.Join(a.prepare(c), a.begin()); err != nil {
		a.stop()
		return nil, err
	}
	return a, nil
}

// stop ends the load, and waits for it.
func (a *programs) stop() {
	a.end()
	for _, p := range a.list {
		_ = p.server.Close()
	}
	a.wait.Wait()
	for _, s := range a.sessions {
		_ = s.Close(context.Background())
	}
}

// failed says what must not happen in a fail-over.
func (a *programs) failed() error {
	if n := a.lost.Load(); n > 0 {
		return fmt.Errorf("%d sessions were lost", n)
	}
	return nil
}

// prepare has the operator make directories for the programs, and set a quota.
func (a *programs) prepare(c *cell) error {
	ops, err := client.New(a.ctx, c.config("ops.example.org"))
	if err != nil {
		return err
	}
	defer func() { _ = ops.Close(context.Background()) }()
	everybody := client.OpenOptions{Read: true, Write: true, Create: client.Directory}
	for _, dir := range []string{"jobs", "config", "reports", "services"} {
		if _, err := ops.Open(a.ctx, "/ls/main/"+dir, everybody); err != nil {
			return err
		}
	}
	return errors.Join(
		ops.SetPrincipalQuota(a.ctx, "reports", api.Quota{Nodes: 400, Bytes: 4 << 20, Sessions: 20, Handles: 400, Waiters: 20}),
		ops.SetDirectoryQuota(a.ctx, "/ls/main/reports", 500, 8<<20))
}

// begin opens the sessions, and has each do what the program does.
func (a *programs) begin() error {
	billing, frontend, reports := a.list[0], a.list[1], a.list[2]
	for i := range 12 {
		if err := a.session(billing, func(ctx context.Context, s *client.Client) error { return takeLocks(ctx, s, i%3) }); err != nil {
			return err
		}
	}
	for i := range 6 {
		if err := a.session(billing, func(ctx context.Context, s *client.Client) error { return bePrimary(ctx, s, i/2) }); err != nil {
			return err
		}
	}
	for range 30 {
		if err := a.session(frontend, readConfig); err != nil {
			return err
		}
	}
	for i := range 4 {
		if err := a.session(reports, func(ctx context.Context, s *client.Client) error { return write(ctx, s, i) }); err != nil {
			return err
		}
	}
	a.wait.Go(func() { a.comeAndGo(reports) })
	return nil
}

// session opens a session, and does something in it again and again, a failure of which is no matter: fail-overs do that.
func (a *programs) session(p *program, do func(ctx context.Context, s *client.Client) error) error {
	s, err := client.New(a.ctx, p.config)
	if err != nil {
		return err
	}
	a.sessions = append(a.sessions, s)
	a.wait.Go(func() {
		for a.ctx.Err() == nil {
			err := do(a.ctx, s)
			if errors.Is(err, api.SessionExpired) {
				a.lost.Add(1)
				return
			}
			_ = wait(a.ctx, 100*time.Millisecond)
		}
	})
	return nil
}

func readWrite() client.OpenOptions {
	return client.OpenOptions{Read: true, Write: true, Create: client.File}
}

// takeLocks takes one of a few locks, works for a moment, and releases it.
func takeLocks(ctx context.Context, s *client.Client, lock int) error {
	h, err := s.Open(ctx, fmt.Sprintf("/ls/main/jobs/invoices-%d", lock), readWrite())
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(ctx) }()
	for {
		l, err := h.Acquire(ctx, api.Exclusive, client.Reason("invoices of a customer"))
		if err != nil {
			return err
		}
		_ = wait(ctx, 20*time.Millisecond)
		if err := errors.Join(l.Release(ctx), wait(ctx, 30*time.Millisecond)); err != nil {
			return err
		}
	}
}

// bePrimary waits for the lock of a service, and keeps it as long as the session lives.
func bePrimary(ctx context.Context, s *client.Client, service int) error {
	options := readWrite()
	options.LockDelay = 10 * time.Second
	h, err := s.Open(ctx, fmt.Sprintf("/ls/main/services/billing-%d", service), options)
	if err != nil {
		return err
	}
	l, err := h.Acquire(ctx, api.Exclusive, client.Reason("primary"))
	if err != nil {
		return err
	}
	select {
	case <-l.Context().Done():
	case <-ctx.Done():
	}
	return l.Release(context.WithoutCancel(ctx))
}

// readConfig reads a file that all frontends have in their caches, a hundred times a second, and hears when it changes.
func readConfig(ctx context.Context, s *client.Client) error {
	options := readWrite()
	options.Events = []api.EventKind{api.EventContentsModified}
	h, err := s.Open(ctx, "/ls/main/config/frontend.yaml", options)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(ctx) }()
	ctx, cancel := context.WithCancel(ctx)
	var events sync.WaitGroup
	events.Go(func() {
		for _, err := range h.Events(ctx) { // the next read has what is new
			if err != nil {
				return
			}
		}
	})
	defer events.Wait()
	defer cancel()
	for {
		if _, _, err := h.Contents(ctx); err != nil {
			return err
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// write writes a report ten times a second, and looks for one that is not there; the first writer changes the frontends' file, too.
func write(ctx context.Context, s *client.Client, i int) error {
	for n := 0; ; n++ {
		h, err := s.Open(ctx, fmt.Sprintf("/ls/main/reports/%d-%d", i, n%50), readWrite())
		if err != nil {
			return err
		}
		_, err = h.SetContents(ctx, make([]byte, 1000))
		if err := errors.Join(err, h.Close(ctx)); err != nil {
			return err
		}
		if n%10 == 0 {
			_, err := s.Open(ctx, "/ls/main/reports/yesterday", client.OpenOptions{Read: true})
			if !errors.Is(err, api.NotFound) {
				return err
			}
		}
		if i == 0 && n%10 == 0 {
			h, err := s.Open(ctx, "/ls/main/config/frontend.yaml", readWrite())
			if err != nil {
				return err
			}
			_, err = h.SetContents(ctx, fmt.Appendf(nil, "version: %d\n", n))
			if err := errors.Join(err, h.Close(ctx)); err != nil {
				return err
			}
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// comeAndGo opens a session each two seconds, and ends it.
func (a *programs) comeAndGo(p *program) {
	for a.ctx.Err() == nil {
		s, err := client.New(a.ctx, p.config)
		if err == nil {
			_ = wait(a.ctx, time.Second)
			_ = s.Close(context.WithoutCancel(a.ctx))
		}
		_ = wait(a.ctx, time.Second)
	}
}
