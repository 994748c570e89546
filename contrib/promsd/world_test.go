package promsd_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/contrib/promsd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

const svc = "/ls/local/web"

// world is a cell, and a directory for files.
type world struct {
	*testing.T
	cell *celltest.Cell
	dir  string
}

func inWorld(t *testing.T, test func(w *world)) {
	dir := t.TempDir()
	celltest.Run(t, 3, func(t *testing.T, c *celltest.Cell) { test(&world{T: t, cell: c, dir: dir}) })
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func withoutCache(cfg *client.Config) { cfg.NoCache = true }

func (w *world) dial(host string) *client.Client {
	w.Helper()
	return w.cell.Client(host, withoutCache)
}

func (w *world) publish(c *client.Client, e recipe.Endpoint) *recipe.Publication {
	w.Helper()
	p, err := recipe.Publish(w.Context(), c, svc, e)
	w.ok(err)
	return p
}

// run runs a Discovery on the host "sd" until the test ends. It returns the Keeper, too.
func (w *world) run(jobs ...promsd.Job) (*promsd.Discovery, *client.Keeper) {
	w.Helper()
	keeper := w.cell.Keep("sd", withoutCache)
	d, err := promsd.New(promsd.Config{Sessions: keeper, Jobs: jobs})
	w.ok(err)
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	return d, keeper
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// settle lets some virtual seconds pass.
func settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// expect compares the targets of a file.
func (w *world) expect(what, file, want string) {
	w.Helper()
	settle()
	text, err := os.ReadFile(file)
	w.ok(err)
	if got := targets(w.T, text); got != want {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

// parse reads a list as Prometheus does.
func parse(t *testing.T, text []byte) (groups []*targetgroup.Group) {
	t.Helper()
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return groups
}

// targets are the addresses of a list.
func targets(t *testing.T, text []byte) string {
	t.Helper()
	var all []string
	for _, g := range parse(t, text) {
		for _, target := range g.Targets {
			all = append(all, string(target["__address__"]))
		}
	}
	return strings.Join(all, " ")
}

// metric returns the value of a metric of the Job web, -1 if it is missing.
func metric(t *testing.T, d *promsd.Discovery, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(d)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "chubby_promsd_"+name && m.GetLabel()[0].GetValue() == "web" {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// session returns the number of the Keeper's session.
func (w *world) session(k *client.Keeper) (id api.SessionID) {
	w.Helper()
	w.ok(k.Do(w.Context(), func(c *client.Client) error { id = c.Session(); return nil }))
	return id
}

func (w *world) expectMetrics(d *promsd.Discovery, what string, want map[string]float64) {
	w.Helper()
	for name, value := range want {
		if got := metric(w.T, d, name); got != value {
			w.Errorf("%s: %s is %v, want %v", what, name, got, value)
		}
	}
}
