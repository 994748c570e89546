package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/file"
	sdhttp "github.com/prometheus/prometheus/discovery/http"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

// reader is what Prometheus makes of what one of its discoverers tells.
type reader struct {
	errors prometheus.Gatherer

	mu     sync.Mutex // guards what follows
	groups map[string]*targetgroup.Group
	fewest int // the fewest targets since the last call of watch; -1 before
}

// read runs one of Prometheus's discoverers until the test ends.
func read(t *testing.T, cfg discovery.Config) *reader {
	t.Helper()
	registry := prometheus.NewRegistry()
	refreshing := discovery.NewRefreshMetrics(registry)
	metrics := cfg.NewDiscovererMetrics(registry, refreshing)
	for _, m := range []interface{ Register() error }{refreshing, metrics} {
		if err := m.Register(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := cfg.NewDiscoverer(discovery.DiscovererOptions{Metrics: metrics, SetName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{errors: registry, groups: map[string]*targetgroup.Group{}, fewest: -1}
	ctx, stop := context.WithCancel(context.Background())
	updates := make(chan []*targetgroup.Group)
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx, updates) })
	running.Go(func() {
		for {
			select {
			case groups, more := <-updates:
				if !more {
					return
				}
				r.update(groups)
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return r
}

func (r *reader) update(groups []*targetgroup.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range groups {
		r.groups[g.Source] = g
	}
	if n := len(r.addresses()); r.fewest < 0 || n < r.fewest {
		r.fewest = n
	}
}

// addresses are the targets, sorted. The caller has the mutex.
func (r *reader) addresses() []string {
	all := map[string]bool{}
	for _, g := range r.groups {
		for _, target := range g.Targets {
			all[string(target[model.AddressLabel])] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (r *reader) targets() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.addresses(), " ")
}

// watch forgets how few targets there were. Afterwards, low returns how few there have been since.
func (r *reader) watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fewest = len(r.addresses())
}

func (r *reader) low() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fewest
}

// readErrors is how many files could not be read.
func (r *reader) readErrors(t *testing.T) (n float64) {
	t.Helper()
	families, err := r.errors.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "prometheus_sd_file_read_errors_total" {
			n += f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return n
}

// patience is how long what must happen may take on a busy machine.
const patience = 2 * time.Minute

// field is a cell, the program, and Prometheus's readers of what it says.
type field struct {
	*testing.T
	cell             *processes.Cell
	config, file     string
	listen           string
	program          *processes.Process
	byFile, byHTTP   *reader
	session          *client.Client
	lastPublications map[string]*recipe.Publication
}

func newField(t *testing.T) *field {
	dir := t.TempDir()
	f := &field{T: t, cell: processes.Start(t, 3), config: filepath.Join(dir, "promsd.json"), file: filepath.Join(dir, "sd", "web.json"),
		listen: fmt.Sprintf("127.0.0.1:%d", processes.FreePorts(t, 1)), lastPublications: map[string]*recipe.Publication{}}
	if err := os.Mkdir(filepath.Dir(f.file), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"servers": f.cell.Servers(), "lease": "2s", "listen": f.listen,
		"jobs": []map[string]string{{"name": "web", "path": "/ls/local/web", "file": f.file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if f.session, err = client.New(t.Context(), client.Config{Servers: f.cell.Servers()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = f.session.Close(ctx) // the cell may be gone
	})
	f.start()
	f.byFile = read(t, &file.SDConfig{Files: []string{filepath.Join(filepath.Dir(f.file), "*.json")}, RefreshInterval: model.Duration(time.Hour)})
	f.byHTTP = read(t, &sdhttp.SDConfig{URL: "http://" + f.listen + "/sd/web", RefreshInterval: model.Duration(100 * time.Millisecond)})
	return f
}

func (f *field) start() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), programTask+"="+f.config)
	f.program = processes.Run(f.T, cmd, nil)
}

func (f *field) publish(address string) {
	f.Helper()
	p, err := recipe.Publish(f.Context(), f.session, "/ls/local/web", recipe.Endpoint{Address: address, Metadata: map[string]string{"zone": "z1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.lastPublications[address] = p
}

// expect waits until both readers have these targets.
func (f *field) expect(what, want string) {
	f.Helper()
	defer func(began time.Time) { f.Logf("%s: %v", what, time.Since(began)) }(time.Now())
	within(f.T, patience, what+": "+want, func() bool { return f.byFile.targets() == want && f.byHTTP.targets() == want })
}

// fresh returns the metric, "" if there is none.
func (f *field) fresh() string {
	answer, err := http.Get("http://" + f.listen + "/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), `chubby_promsd_fresh{job="web"} `); found {
			return value
		}
	}
	return ""
}

// TestPrometheus: Prometheus's own discoverers read what the program says, while masters are killed, the
// program loses its session, the cell stops, and the program is killed. They never have fewer targets
// than there are, and never a file that they cannot read.
func TestPrometheus(t *testing.T) {
	f := newField(t)
	f.publish("a:1")
	f.publish("b:1")
	f.expect("announced", "a:1 b:1")
	f.byFile.watch()
	f.byHTTP.watch()

	for round := range 2 {
		f.cell.KillMaster()
		f.publish(fmt.Sprintf("c:%d", round))
	}
	f.expect("after masters were killed", "a:1 b:1 c:0 c:1")

	before, err := f.session.Cell().Status(t.Context()) // asked first: without a master it may take longer than the session lasts
	if err != nil {
		t.Fatal(err)
	}
	f.program.Signal(syscall.SIGSTOP) // its session ends meanwhile
	within(t, patience, "the program's session is lost", func() bool {
		s, err := f.session.Cell().Status(t.Context())
		return err == nil && s.Sessions < before.Sessions
	})
	f.publish("d:1")
	f.program.Signal(syscall.SIGCONT)
	f.expect("after a lost session", "a:1 b:1 c:0 c:1 d:1")

	f.cell.Signal(syscall.SIGSTOP)
	within(t, patience, "the metric says that the cell cannot be reached", func() bool { return f.fresh() == "0" })
	stays := func(what string) {
		t.Helper()
		if got := f.byFile.targets(); got != "a:1 b:1 c:0 c:1 d:1" || got != f.byHTTP.targets() {
			t.Errorf("%s: %s; %s", what, got, f.byHTTP.targets())
		}
	}
	stays("without a cell")
	f.program.End(syscall.SIGKILL)
	f.start()
	within(t, patience, "the program runs again", func() bool { return f.fresh() == "0" })
	stays("started again without a cell")
	f.cell.Signal(syscall.SIGCONT)
	within(t, patience, "the cell answers again", func() bool { return f.fresh() == "1" })
	stays("the cell is back")
	if low := []int{f.byFile.low(), f.byHTTP.low()}; low[0] != 2 || low[1] != 2 {
		t.Errorf("Prometheus had only %d targets", low)
	}

	if err := f.lastPublications["a:1"].Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.expect("one is withdrawn", "b:1 c:0 c:1 d:1")
	if n := f.byFile.readErrors(t); n != 0 {
		t.Errorf("%v times, Prometheus could not read a file", n)
	}
	f.program.End(syscall.SIGTERM)
	if code := f.program.ExitCode(); code != 0 {
		t.Errorf("asked to stop, it ended with %d", code)
	}
}
