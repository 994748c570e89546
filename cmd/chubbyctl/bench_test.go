package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// benchFields are the figures of a bench, as programs read them.
type benchFields struct {
	Workload    string
	Clients     int
	Interrupted bool
	Operations  []struct {
		Operation string
		Count     int64
		RatePerS  float64 `json:"rate_per_s"`
		MinMS     float64 `json:"min_ms"`
		P50MS     float64 `json:"p50_ms"`
		P99MS     float64 `json:"p99_ms"`
		MaxMS     float64 `json:"max_ms"`
	}
}

func benched(t *testing.T, text string) (fields benchFields) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, `{"workload"`) {
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			return fields
		}
	}
	t.Fatalf("no figures in\n%s", text)
	return fields
}

// Every workload does what its name says, at the given rate, and removes what it has created.
func TestBench(t *testing.T) {
	for name, w := range workloads() {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				before := s.run("tree")
				text := s.run("bench " + name + " --clients 3 --duration 2s --rate 10 -o json")
				if strings.Contains(text, "[exit") || !strings.Contains(text, "Ctrl-C ends it early") {
					t.Errorf("it printed\n%s", text)
				}
				f := benched(t, text)
				if f.Workload != name || f.Clients != 3 || f.Interrupted || len(f.Operations) != len(w.operations) {
					t.Errorf("figures %+v", f)
				}
				for i, o := range f.Operations {
					if o.Operation != w.operations[i] || o.Count != 20 || o.RatePerS < 9 || o.RatePerS > 10.1 {
						t.Errorf("%s: %+v, at 10/s for 2 s", w.operations[i], o)
					}
					if o.MinMS > o.P50MS || o.P50MS > o.P99MS || o.P99MS > o.MaxMS {
						t.Errorf("%s: percentiles are not in order: %+v", w.operations[i], o)
					}
				}
				if after := s.run("tree"); after != before {
					t.Errorf("it left something behind:\n%s", after)
				}
				if sessions := s.run("session ls"); !strings.Contains(sessions, "no sessions") {
					t.Errorf("sessions remain:\n%s", sessions)
				}
			})
		})
	}
}

// After Ctrl-C a bench prints the figures until then, and cleans up.
func TestBenchInterrupted(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s.ctx = ctx
		var text string
		s.beside.Go(func() { text = s.run("bench writes --rate 10 --duration 60s -o json") })
		time.Sleep(3 * time.Second)
		cancel(interrupted{os.Interrupt})
		s.beside.Wait()
		if f := benched(t, text); !f.Interrupted || f.Operations[0].Count < 20 || f.Operations[0].Count > 35 || !strings.Contains(text, "[exit 130]") {
			t.Errorf("it printed\n%s", text)
		}
		s.ctx = t.Context()
		if left := s.run("ls"); left != "  acl/\n" {
			t.Errorf("it left something behind:\n%s", left)
		}
	})
}

// A bench ends although its cell does not answer any more: operations that have begun are given up
// after --timeout, and soon after Ctrl-C.
func TestBenchWithoutCell(t *testing.T) {
	const away, ends, timeout = 3 * time.Second, 5 * time.Second, 15 * time.Second
	for name, one := range map[string]struct {
		interrupted bool
		within      time.Duration // for operations that have begun, and for the end of the sessions; then it tries to clean up
		says        string
	}{
		"Ctrl-C":         {true, 2 * closeBound, "[exit 130]"},
		"the time is up": {false, timeout + closeBound, "[exit 76]"},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				s.ctx = ctx
				time.AfterFunc(away, func() { s.cell.Kill("r1") })
				duration := ends
				if one.interrupted {
					duration = maxBenchDuration
					time.AfterFunc(ends, func() { cancel(interrupted{os.Interrupt}) })
				}
				watch := stopwatch()
				text := s.run(fmt.Sprintf("bench writes --rate 10 --duration %v -o json", duration))
				within := one.within + 2*client.CleanupTime + timeout
				if took := watch() - ends; took > within {
					t.Errorf("it ended %v after it should have, want %v at most", took, within)
				}
				if !strings.Contains(text, one.says) {
					t.Errorf("want %s; it printed\n%s", one.says, text)
				}
			})
		})
	}
}

func TestLatenciesForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 300 * time.Nanosecond: "300ns", 1200 * time.Nanosecond: "1.2µs", 12345 * time.Microsecond: "12.35ms", 2 * time.Second: "2s",
	} {
		if got := milliseconds(float64(d) / 1e6).String(); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// Where the sessions could not be ended, the files that go with them are deleted.
func TestBenchLeavesNothingAfterAnOutage(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		s.ctx = ctx
		time.AfterFunc(3*time.Second, func() { s.cell.Reset("client") })
		time.AfterFunc(5*time.Second, func() { cancel(interrupted{os.Interrupt}) })
		time.AfterFunc(11200*time.Millisecond, func() { s.cell.Heal("client") })
		text := s.run("bench writes --rate 10 --duration 60s")
		time.Sleep(3 * time.Minute)
		s.ctx = t.Context()
		if left := s.run("ls -R"); strings.Contains(left, "bench-") {
			t.Errorf("it left\n%s\nand said\n%s", left, text)
		}
	})
}
