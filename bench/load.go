package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are recorded from 100 ns to a minute, with three digits.
const (
	tick    = 100 * time.Nanosecond
	longest = time.Minute
)

// patience bounds an operation that began before the end of its row.
const patience = 30 * time.Second

// sample is one row measured once.
type sample struct {
	Rate float64       `json:"rate"` // operations a second
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	Max  time.Duration `json:"max_ns"`
	Ops  int64         `json:"ops"`
}

// load runs each operation in its own loop, all concurrently, for warm and then for measure. It
// counts the operations that begin and end within measure. It returns at the first error.
func load(ctx context.Context, warm, measure time.Duration, ops []func(context.Context) error) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, warm+measure+patience)
	defer cancel()
	begin := time.Now().Add(warm)
	end := begin.Add(measure)
	stop := make(chan struct{})
	var once sync.Once
	var wait sync.WaitGroup
	histograms := make([]*hdrhistogram.Histogram, len(ops))
	errs := make([]error, len(ops))
	for i, op := range ops {
		histograms[i] = hdrhistogram.New(1, int64(longest/tick), 3)
		wait.Go(func() {
			errs[i] = loop(ctx, stop, begin, end, op, histograms[i])
			if errs[i] != nil {
				errs[i] = fmt.Errorf("client %d: %w", i, errs[i])
				once.Do(func() { close(stop) })
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	for _, h := range histograms[1:] {
		histograms[0].Merge(h)
	}
	return summarize(histograms[0], measure), nil
}

// loop repeats op until end, until stop is closed, or until it fails.
func loop(ctx context.Context, stop <-chan struct{}, begin, end time.Time, op func(context.Context) error, h *hdrhistogram.Histogram) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		started := time.Now()
		if !started.Before(end) {
			return nil
		}
		if err := op(ctx); err != nil {
			return err
		}
		ended := time.Now()
		if started.Before(begin) || ended.After(end) {
			continue
		}
		took := max(1, min(int64(ended.Sub(started)/tick), int64(longest/tick)))
		if err := h.RecordValue(took); err != nil {
			return err
		}
	}
}

func summarize(h *hdrhistogram.Histogram, measure time.Duration) sample {
	return sample{
		Rate: float64(h.TotalCount()) / measure.Seconds(),
		P50:  time.Duration(h.ValueAtQuantile(50)) * tick,
		P99:  time.Duration(h.ValueAtQuantile(99)) * tick,
		Max:  time.Duration(h.Max()) * tick,
		Ops:  h.TotalCount(),
	}
}
