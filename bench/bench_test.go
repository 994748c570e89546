package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
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

// operation always takes that long.
func operation(took time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(took)
		return nil
	}
}

func TestLoadCountsWhatFallsWithinTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := load(t.Context(), time.Second, 5*time.Second, []func(context.Context) error{
			operation(10 * time.Millisecond), operation(10 * time.Millisecond),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Ops != 1000 || got.Rate != 200 {
			t.Errorf("two workers at 10 ms for 5 s: %d operations, %v /s; want 1000, 200", got.Ops, got.Rate)
		}
		for _, latency := range []time.Duration{got.P50, got.P99, got.Max} {
			if latency < 9990*time.Microsecond || latency > 10010*time.Microsecond {
				t.Errorf("latency %v, want 10 ms to three digits", latency)
			}
		}
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("took %v, want warm-up and measurement, 6 s", took)
		}
	})
}

func TestLoadLeavesOutWhatOverlapsItsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The operations begin at 0, 0.7, 1.4, …: the second begins before the
		// measurement, and the one that begins at 2.8 s ends after it.
		got, err := load(t.Context(), time.Second, 2*time.Second, []func(context.Context) error{operation(700 * time.Millisecond)})
		if err != nil || got.Ops != 2 {
			t.Errorf("%d operations (%v), want the 2 that begin and end within it", got.Ops, err)
		}
	})
}

func TestLoadEndsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		broken := errors.New("broken")
		_, err := load(t.Context(), time.Second, time.Hour, []func(context.Context) error{
			operation(time.Second),
			func(context.Context) error { return broken },
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "client 1") {
			t.Errorf("error %v, want that of client 1", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the others went on for %v after the error", took)
		}
	})
}

func TestLoadIsBoundedByPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := load(t.Context(), time.Second, time.Second, []func(context.Context) error{
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v of an operation that hangs, want the deadline", err)
		}
		if took := time.Since(began); took != 2*time.Second+patience {
			t.Errorf("gave up after %v, want the row's 2 s and %v", took, patience)
		}
	})
}

// example returns the results of two rounds of two systems.
func example() *book {
	var b book
	b.versions("chubby", "Chubby abc")
	b.versions("etcd", "etcd v0")
	list := rows("")
	for _, rate := range []float64{100, 500, 300} {
		b.add(list[0], "chubby", sample{Rate: rate, P50: time.Millisecond, P99: 2 * time.Millisecond})
		b.add(list[0], "etcd", sample{Rate: rate / 2, P50: 3 * time.Millisecond, P99: 40 * time.Millisecond})
	}
	b.add(list[len(list)-1], "chubby", sample{Rate: 1e6, P50: 900})
	return &b
}

func TestTableShowsMediansAndRatios(t *testing.T) {
	b := example()
	list := b.rows(options{})
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
	if err := writeText(&out, machine{}, options{rounds: 3}, b); err != nil || !strings.Contains(out.String(), "chubby : etcd") {
		t.Errorf("text %q (%v) has no column of ratios", out.String(), err)
	}
}

func TestJSONHasOneObjectALine(t *testing.T) {
	var out bytes.Buffer
	if err := writeJSON(&out, machine{CPUs: 2}, options{rounds: 3}, example().results); err != nil {
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
	if err := writePage(file, machine{CPU: "abacus"}, options{rounds: 3}, example()); err != nil {
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
			}, &out)
			if err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(out.String(), "\n"); lines < 4 {
				t.Errorf("%d lines, want the machine, lock+unlock, write and read:\n%s", lines, out.String())
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) > 0 {
				t.Errorf("%d files were left behind (%v)", len(left), err)
			}
		})
	}
}
