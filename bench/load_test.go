package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lasting is an operation that always takes that long, and has its lock after half of it.
func lasting(took time.Duration) operation {
	return func(_ context.Context, held func()) error {
		time.Sleep(took / 2)
		held()
		time.Sleep(took - took/2)
		return nil
	}
}

func TestLoadMeasuresRateAndLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := load(t.Context(), plan{warm: time.Second, measure: 5 * time.Second}, []operation{
			lasting(10 * time.Millisecond), lasting(10 * time.Millisecond),
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

func TestLoadMeasuresWaitsSharesAndProcessorTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		used := func() usage { // half of a processor, a tenth, and 1 MB/s
			return usage{servers: time.Since(began) / 2, generator: time.Since(began) / 10, sent: 1000 * time.Since(began).Milliseconds()}
		}
		got, err := load(t.Context(), plan{warm: time.Second, measure: 4 * time.Second, used: used}, []operation{
			lasting(10 * time.Millisecond), lasting(40 * time.Millisecond),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Ops != 500 || got.Fewest != 0.4 || got.Most != 1.6 {
			t.Errorf("%d operations, shares %v to %v; want 400 + 100, 0.4 to 1.6", got.Ops, got.Fewest, got.Most)
		}
		if got.WaitMean.Round(100*time.Microsecond) != 8*time.Millisecond || got.WaitMax.Round(100*time.Microsecond) != 20*time.Millisecond {
			t.Errorf("waits %v in the mean, %v at most; want 8 ms, 20 ms", got.WaitMean, got.WaitMax)
		}
		if got.ServerCPU != 4*time.Millisecond || got.ClientCPU != 800*time.Microsecond {
			t.Errorf("processor time of an operation %v and %v, want 4 ms and 0.8 ms", got.ServerCPU, got.ClientCPU)
		}
		if got.Bytes != 8000 {
			t.Errorf("%d bytes an operation, want 8,000", got.Bytes)
		}
	})
}

func TestLoadEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := load(t.Context(), plan{measure: time.Hour, limit: 100}, []operation{lasting(10 * time.Millisecond), lasting(10 * time.Millisecond)})
		if err != nil || got.Ops != 100 || got.Rate < 195 || got.Rate > 200 {
			t.Errorf("%d operations, %v /s (%v), want 100, 200 /s", got.Ops, got.Rate, err)
		}
		if took := time.Since(began); took > 520*time.Millisecond {
			t.Errorf("took %v, want about half a second", took)
		}
	})
}

func TestLoadAtASetRateCountsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plan{warm: time.Second, measure: 4 * time.Second, rate: 100}
		got, err := load(t.Context(), p, []operation{lasting(10 * time.Millisecond), lasting(10 * time.Millisecond)})
		if err != nil || got.Rate != 100 || got.P99.Round(time.Millisecond) != 10*time.Millisecond {
			t.Errorf("%v /s, p99 %v (%v); want the 100 /s that are due, 10 ms", got.Rate, got.P99, err)
		}
		// 40 of 100 /s are done: after t seconds an operation begins 0.6 t late, and at the end, after 5 s,
		// those of the last 3 s have not begun.
		got, err = load(t.Context(), p, []operation{lasting(50 * time.Millisecond), lasting(50 * time.Millisecond)})
		if err != nil || got.Rate < 39 || got.Rate > 41 {
			t.Errorf("%v /s (%v), want 40", got.Rate, err)
		}
		if got.Max < 2900*time.Millisecond || got.Max > 3100*time.Millisecond || got.P50 < time.Second {
			t.Errorf("p50 %v, longest %v; want seconds, for the operations that had to wait", got.P50, got.Max)
		}
	})
}

func TestProcessorTimeIsThatOfTheTree(t *testing.T) {
	busy, err := startChild(t.TempDir(), "busy", nil, keepCommand, "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := busy.stop(); err != nil {
			t.Error(err)
		}
	}()
	deadline := time.Now().Add(2 * time.Minute)
	for processorTime([]int{busy.pid()}) < 200*time.Millisecond { // the keeper, its parent, uses next to none
		if time.Now().After(deadline) {
			t.Fatalf("a busy loop below process %d has used %v in two minutes", busy.pid(), processorTime([]int{busy.pid()}))
		}
		<-time.After(time.Millisecond) // which leaves the processors to the loop
	}
}

func TestGapIsTheLongestTimeWithoutAnAnswer(t *testing.T) {
	origin := time.Now()
	g := &gap{last: origin}
	for _, answer := range []struct {
		at  time.Duration
		err error
	}{{10, nil}, {30, errors.New("no leader")}, {80, nil}, {90, nil}} {
		g.note(origin.Add(answer.at*time.Millisecond), answer.err)
	}
	if widest := g.restart(); widest != 70*time.Millisecond {
		t.Errorf("widest gap %v, want 70 ms: a failure is no answer", widest)
	}
	if g.answeredSince(origin.Add(60*time.Millisecond)) || !g.answeredSince(origin.Add(30*time.Millisecond)) {
		t.Error("the answer at 90 ms counts for a kill at 30 ms, and not for one at 60 ms")
	}
}

func TestLoadCountsWhatEndsWithinTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The operations end at 0.7, 1.4, 2.1, 2.8 and 3.5 s: to leave out the one that began before the
		// measurement, too, would count too few where they take long.
		got, err := load(t.Context(), plan{warm: time.Second, measure: 2 * time.Second}, []operation{lasting(700 * time.Millisecond)})
		if err != nil || got.Ops != 3 {
			t.Errorf("%d operations (%v), want the 3 that end within it", got.Ops, err)
		}
	})
}

// A disk that takes longer than the measurement gives a rate all the same: that of one operation, also of many clients.
func TestLoadCountsOneOperationAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := load(t.Context(), plan{warm: time.Second, measure: time.Second}, slices.Repeat([]operation{lasting(5 * time.Second)}, 20))
		if err != nil || got.Ops != 1 || got.Rate != 0.25 || got.Max.Round(100*time.Millisecond) != 5*time.Second {
			t.Errorf("%d operations, %v /s, the longest took %v (%v); want the one that ends 4 s after the warm-up", got.Ops, got.Rate, got.Max, err)
		}
	})
}

func TestLoadEndsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		broken := errors.New("broken")
		_, err := load(t.Context(), plan{warm: time.Second, measure: time.Hour}, []operation{
			lasting(time.Second),
			func(context.Context, func()) error { return broken },
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
		_, err := load(t.Context(), plan{warm: time.Second, measure: time.Second}, []operation{
			func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v of an operation that hangs, want the deadline", err)
		}
		if took := time.Since(began); took != 2*time.Second+patience {
			t.Errorf("gave up after %v, want the row's 2 s and %v", took, patience)
		}
	})
}
