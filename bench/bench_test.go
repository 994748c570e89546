package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain also runs the bench's other processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{memberCommand, keepCommand, spinCommand, collectorCommand, fsyncCommand}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// example returns the results of three rounds of two systems.
func example() *record {
	r := newRecord(machine{CPU: "abacus", CPUs: 2}, options{rounds: 3, acquisitions: 5000})
	r.addSystem("chubby", "Chubby abc")
	r.addSystem("etcd", "etcd v0")
	r.addSystem("etcd", "etcd v0")
	for _, rate := range []float64{100, 500, 300} {
		r.add(key{Row: "lock+unlock", Clients: 1}, "chubby", sample{Rate: rate, P50: time.Millisecond, P99: 2 * time.Millisecond, ServerCPU: 150 * time.Microsecond, Bytes: 1234})
		r.add(key{Row: "lock+unlock", Clients: 1}, "etcd", sample{Rate: rate / 2, P50: 3 * time.Millisecond, P99: 40 * time.Millisecond})
	}
	r.add(key{Row: readCached, Clients: 1}, "chubby", sample{Rate: 1e6, P50: 900})
	r.add(key{Row: oneLock, Clients: 5}, "etcd", sample{Rate: 50, WaitMean: 10 * time.Millisecond, WaitMax: 25 * time.Millisecond, Fewest: 0.9, Most: 1.1})
	r.add(key{Row: acquisitions, Clients: 3}, "chubby", sample{WaitMean: 4 * time.Millisecond, WaitMax: 9 * time.Millisecond})
	r.add(key{Row: fmt.Sprintf(openLoop, 400), Clients: 64}, "etcd", sample{Rate: 390, P50: time.Millisecond, P99: 70 * time.Millisecond})
	r.add(key{Row: idleSessions, Clients: 1000}, "etcd", sample{Ops: 1000, Cores: 0.125, Memory: 20e6})
	r.add(key{Row: failover, Clients: 4}, "chubby", sampleOf([]time.Duration{time.Second, 3 * time.Second}))
	r.add(key{Row: failover, Clients: 4}, "chubby", sampleOf([]time.Duration{2 * time.Second, 5 * time.Second, 2 * time.Second}))
	return r
}

func TestTableShowsMediansAndRatios(t *testing.T) {
	rows := example().rateTable().rows
	for i, want := range [][]string{
		{"lock+unlock, 1", "300", "1 ms", "2 ms", "150", "3 ms", "40 ms", "2.00"},
		{"read, cached, 1", "1000000", "0.9 µs", "0 µs", "-", "-", "-", "-"},
	} {
		if !slices.Equal(rows[i], want) {
			t.Errorf("cells %q, want %q", rows[i], want)
		}
	}
	var out bytes.Buffer
	if err := example().writeText(&out); err != nil || !strings.Contains(out.String(), "chubby : etcd") {
		t.Errorf("text %q (%v) has no column of ratios", out.String(), err)
	}
}

func TestJSONHasOneObjectALine(t *testing.T) {
	var out bytes.Buffer
	if err := example().writeLines(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := 1 + len(example().Results); len(lines) != want {
		t.Fatalf("%d lines, want %d: the machine and the results", len(lines), want)
	}
	var line struct {
		System, Row string
		Clients     int
		Rate        float64
		P50         int64 `json:"p50_ns"`
		Rounds      []sample
	}
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil {
		t.Fatal(err)
	}
	if line.System != "chubby" || line.Row != "lock+unlock" || line.Clients != 1 || line.Rate != 300 || line.P50 != 1e6 || len(line.Rounds) != 3 {
		t.Errorf("first result %+v", line)
	}
}

func TestPageShowsEveryRow(t *testing.T) {
	dir := t.TempDir()
	first, again := filepath.Join(dir, "page.md"), filepath.Join(dir, "again.md")
	if err := example().writePage(first); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"abacus", "Chubby abc, etcd v0",
		"| lock+unlock, 1 | 300 | 150 | 2.00 |",
		"| lock+unlock, 1 | 1 ms | 2 ms | 3 ms | 40 ms |",
		"the rate of a round is 33 % to 167 % of its row's",
		"| lock+unlock, 1 | 150 µs | 0 µs | 1234 |",
		"| one lock, 5 | - | - | - | 10 ms | 2.5 | 0.90 to 1.10 |",
		"| acquisitions, 3 | 4 ms | 9 ms | - | - |",
		"| longest gap at kill -9, 4 | 2 s | 5 s | - | - |",
		"| lock+unlock, 400 /s asked for, 64 | - | - | - | 390 | 1 ms | 70 ms |",
		"| idle sessions, 1000 | - | - | 0.125 | 20 |",
		"| read, cached, 1 | 1000000 |",
		"](page/rates.svg)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for _, f := range figures() {
		if svg, err := os.ReadFile(filepath.Join(dir, "page", f.file)); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
			t.Errorf("%s is no plot (%v)", f.file, err)
		}
	}
	// The page can be written from the results file alone.
	if err := run([]string{"-from", filepath.Join(dir, "page", resultsFile), "-docs", again}, io.Discard); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(again)
	if err != nil || strings.ReplaceAll(string(second), "](again/", "](page/") != string(text) {
		t.Errorf("the page from the results file differs (%v):\n%s", err, second)
	}
}

// TestChildrenEndWithTheBench: a killed bench only closes its pipes, and that must end the
// children.
func TestChildrenEndWithTheBench(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{spinCommand},
		{collectorCommand},
		{keepCommand, shell, "-c", "echo pid $$; exec " + sleep + " 600"},
	} {
		c, err := startChild(t.TempDir(), "child", nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		pid := 0
		if args[0] == keepCommand {
			line, err := c.await(t.Context(), "pid ")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(line, "pid %d", &pid); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.input.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.gone:
		case <-time.After(time.Minute):
			t.Errorf("%s lives on", args[0])
			if err := c.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-c.gone
		}
		if pid == 0 {
			continue
		}
		if kept, err := os.FindProcess(pid); err == nil && kept.Signal(syscall.Signal(0)) == nil {
			t.Errorf("what %s kept lives on", args[0])
		}
	}
}

// TestRounds runs the whole bench once, as briefly as possible.
func TestRounds(t *testing.T) {
	t.Parallel()
	for _, name := range installedSystems(options{}, t.Output()) { // chubby and etcd at least
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var out bytes.Buffer
			err := run([]string{
				"-systems", name, "-rounds", "1", "-rows", ", 1", "-warm", "100ms", "-measure", "300ms", "-dir", dir, "-o", "json",
				"-acquisitions", "20", "-watchers", "10", "-sessions", "10",
			}, &out)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{`"lock+unlock"`, `"one lock"`, `"write 256 B"`, `"read"`, `"acquisitions"`, `"idle sessions"`, `"all watchers told"`}
			if name == "redis" {
				want = want[:len(want)-2]
			}
			for _, row := range want {
				if !strings.Contains(out.String(), row) {
					t.Errorf("the results lack %s:\n%s", row, out.String())
				}
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) > 0 {
				t.Errorf("%d files were left behind (%v)", len(left), err)
			}
		})
	}
}

// TestLeaderChanges has a leader of each system that survives that step down, and kills one.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]string{"chubby": {handOver, failover}, "etcd": {handOver, failover}, "zookeeper": {failover}} {
		if !slices.Contains(installedSystems(options{}, t.Output()), name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run([]string{"-systems", name, "-rounds", "1", "-rows", "longest gap", "-kills", "1", "-dir", t.TempDir(), "-o", "json"}, &out)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				if !strings.Contains(out.String(), `"row":"`+row+`"`) {
					t.Errorf("the results lack %q:\n%s", row, out.String())
				}
			}
		})
	}
}
