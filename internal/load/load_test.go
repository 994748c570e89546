package load

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const patience = 30 * time.Second

// lasting is an operation that always takes that long, half of it in its first part.
func lasting(took time.Duration) Operation {
	return func(_ context.Context, part func()) error {
		time.Sleep(took / 2)
		part()
		time.Sleep(took - took/2)
		return nil
	}
}

// figures are those of a result.
type figures struct {
	Ops           int64
	Rate          float64
	P50, P99, Max time.Duration
}

func run(ctx context.Context, p Plan, ops []Operation) (figures, error) {
	p.Patience = func(interrupted bool) (time.Duration, error) {
		if interrupted {
			return 0, context.Canceled
		}
		return patience, context.DeadlineExceeded
	}
	r, err := Run(ctx, p, ops)
	return figures{
		r.Count(), float64(r.Count()) / r.Took.Seconds(),
		Time(r.Whole.ValueAtQuantile(50)), Time(r.Whole.ValueAtQuantile(99)), Time(r.Whole.Max()),
	}, err
}

func TestLoadMeasuresRateAndLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := run(t.Context(), Plan{Warm: time.Second, Measure: 5 * time.Second}, []Operation{
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

func TestLoadEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := run(t.Context(), Plan{Measure: time.Hour, Limit: 100}, []Operation{lasting(10 * time.Millisecond), lasting(10 * time.Millisecond)})
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
		p := Plan{Warm: time.Second, Measure: 4 * time.Second, Rate: 100}
		got, err := run(t.Context(), p, []Operation{lasting(10 * time.Millisecond), lasting(10 * time.Millisecond)})
		if err != nil || got.Rate != 100 || got.P99.Round(time.Millisecond) != 10*time.Millisecond {
			t.Errorf("%v /s, p99 %v (%v); want the 100 /s that are due, 10 ms", got.Rate, got.P99, err)
		}
		// 40 of 100 /s are done: after t seconds an operation begins 0.6 t late, and at the end, after 5 s,
		// those of the last 3 s have not begun.
		got, err = run(t.Context(), p, []Operation{lasting(50 * time.Millisecond), lasting(50 * time.Millisecond)})
		if err != nil || got.Rate < 39 || got.Rate > 41 {
			t.Errorf("%v /s (%v), want 40", got.Rate, err)
		}
		if got.Max < 2900*time.Millisecond || got.Max > 3100*time.Millisecond || got.P50 < time.Second {
			t.Errorf("p50 %v, longest %v; want seconds, for the operations that had to wait", got.P50, got.Max)
		}
	})
}

func TestLoadCountsWhatEndsWithinTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The operations end at 0.7, 1.4, 2.1, 2.8 and 3.5 s: to leave out the one that began before the
		// measurement, too, would count too few where they take long.
		got, err := run(t.Context(), Plan{Warm: time.Second, Measure: 2 * time.Second}, []Operation{lasting(700 * time.Millisecond)})
		if err != nil || got.Ops != 3 {
			t.Errorf("%d operations (%v), want the 3 that end within it", got.Ops, err)
		}
	})
}

// Operations that all take longer than the measurement give a rate all the same: those under way count.
func TestLoadCountsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := run(t.Context(), Plan{Warm: time.Second, Measure: time.Second}, slices.Repeat([]Operation{lasting(5 * time.Second)}, 20))
		if err != nil || got.Ops != 20 || got.Rate != 5 || got.Max.Round(100*time.Millisecond) != 5*time.Second {
			t.Errorf("%d operations, %v /s, the longest took %v (%v); want the 20 that end 4 s after the warm-up", got.Ops, got.Rate, got.Max, err)
		}
	})
}

// A stall at the end of the measurement shows in the latencies, also of operations that end after it.
func TestLoadTellsOfAStallAtItsEnd(t *testing.T) {
	for _, rate := range []float64{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			stalls := func(context.Context, func()) error {
				if time.Since(began) > 6*time.Second {
					time.Sleep(time.Until(began.Add(13 * time.Second)))
				}
				time.Sleep(100 * time.Millisecond)
				return nil
			}
			got, err := run(t.Context(), Plan{Measure: 10 * time.Second, Rate: rate}, []Operation{stalls})
			if err != nil || got.Max < 6*time.Second || got.Ops < 50 || got.Ops > 70 {
				t.Errorf("at %v /s: %d operations, the longest took %v (%v); want some 60, and 7 s", rate, got.Ops, got.Max, err)
			}
		})
	}
}

func TestLoadEndsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		broken := errors.New("broken")
		_, err := run(t.Context(), Plan{Warm: time.Second, Measure: time.Hour}, []Operation{
			lasting(time.Second),
			func(context.Context, func()) error { return broken },
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "client 2") {
			t.Errorf("error %v, want that of client 2", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the others went on for %v after the error", took)
		}
	})
}

func TestLoadIsBoundedByPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := run(t.Context(), Plan{Warm: time.Second, Measure: time.Second}, []Operation{
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

// After an interrupt no more operations begin, and those that go on are cut off; what was measured is returned.
func TestLoadIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupt := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second+time.Millisecond, func() { cancel(interrupt) })
		got, err := run(ctx, Plan{Measure: time.Hour}, []Operation{
			lasting(time.Second),
			func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		})
		if !errors.Is(err, interrupt) || got.Ops != 4 {
			t.Errorf("%d operations (%v), want the 3 that ended before, and the one that nothing cut off", got.Ops, err)
		}
	})
}

// An operation begins if its time has come, although no more begin at the same moment; and never if its time has not come.
func TestWhatIsDueAtTheEndBegins(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	for range 100 { // which of the two is seen first is chance
		if !waitUntil(over, time.Now()) {
			t.Fatal("what was due did not begin")
		}
		if waitUntil(over, time.Now().Add(time.Hour)) {
			t.Fatal("what was not due began")
		}
	}
}
