package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	if len(os.Args) > 1 && slices.Contains([]string{memberCommand, keepCommand, spinCommand}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// example returns the results of two rounds of two systems.
func example() *book {
	var b book
	b.versions("chubby", "Chubby abc")
	b.versions("etcd", "etcd v0")
	list := rows(options{acquisitions: 1})
	for _, rate := range []float64{100, 500, 300} {
		b.add(list[0], "chubby", sample{Rate: rate, P50: time.Millisecond, P99: 2 * time.Millisecond})
		b.add(list[0], "etcd", sample{Rate: rate / 2, P50: 3 * time.Millisecond, P99: 40 * time.Millisecond})
	}
	b.add(list[9], "chubby", sample{Rate: 1e6, P50: 900}) // read, cached
	return &b
}

func TestTableShowsMediansAndRatios(t *testing.T) {
	b := example()
	list := b.rows(options{acquisitions: 1})
	if len(list) != 2 {
		t.Fatalf("%d rows, want the two that were measured", len(list))
	}
	want := []string{"300", "1 ms", "2 ms", "150", "3 ms", "40 ms", "2.00"}
	if got := b.cells(list[0]); !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
	want = []string{"1000000", "0.9 µs", "0 µs", "-", "-", "-", "-"}
	if got := b.cells(list[1]); !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
	var out bytes.Buffer
	if err := writeText(&out, machine{}, options{rounds: 3, acquisitions: 1}, b); err != nil || !strings.Contains(out.String(), "chubby : etcd") {
		t.Errorf("text %q (%v) has no column of ratios", out.String(), err)
	}
}

func TestJSONHasOneObjectALine(t *testing.T) {
	var out bytes.Buffer
	if err := writeJSON(&out, machine{CPUs: 2}, options{rounds: 3, acquisitions: 1}, example().results); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want the machine and three results", len(lines))
	}
	var line struct {
		System, Row string
		Rate        float64
		P50         int64 `json:"p50_ns"`
		Rounds      []sample
	}
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil {
		t.Fatal(err)
	}
	if line.System != "chubby" || line.Row != "lock+unlock" || line.Rate != 300 || line.P50 != 1e6 || len(line.Rounds) != 3 {
		t.Errorf("first result %+v", line)
	}
}

func TestPageShowsEveryRow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := writePage(file, machine{CPU: "abacus"}, options{rounds: 3, acquisitions: 1}, example()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"abacus", "Chubby abc, etcd v0",
		"| lock+unlock, 1 | 300 | 1 ms | 2 ms | 150 | 3 ms | 40 ms | 2.00 |",
		"| lock+unlock, 1 | 100 to 500 | 50 to 250 |",
		"| read, cached, 1 | 1000000 |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
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
		case <-time.After(10 * time.Second):
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
	for _, name := range installedSystems(options{}, t.Output()) { // chubby and etcd at least
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var out bytes.Buffer
			err := run([]string{
				"-systems", name, "-rounds", "1", "-rows", ", 1", "-warm", "100ms", "-measure", "300ms", "-dir", dir, "-o", "json",
				"-acquisitions", "20", "-watchers", "10",
			}, &out)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{`"lock+unlock"`, `"one lock"`, `"write 256 B"`, `"read"`, `"acquisitions"`, `"all watchers told"`}
			if name == "redis" {
				want = want[:len(want)-1]
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

// TestFailover kills a leader of each system that survives that.
func TestFailover(t *testing.T) {
	for _, name := range installedSystems(options{}, t.Output()) {
		if s, err := newSystem(name, options{}); err != nil {
			t.Fatal(err)
		} else if _, ok := s.(mortal); !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run([]string{"-systems", name, "-rounds", "1", "-rows", failover, "-kills", "1", "-dir", t.TempDir(), "-o", "json"}, &out)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), `"times_ns":[`) {
				t.Errorf("no gap was measured:\n%s", out.String())
			}
		})
	}
}
