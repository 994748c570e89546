package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// Latencies range from 100 ns to ten minutes, with three digits.
const (
	latencyTick = 100 * time.Nanosecond
	maxLatency  = 10 * time.Minute
)

type latencies struct {
	mu         sync.Mutex                         // guards histograms and their contents
	histograms map[string]*hdrhistogram.Histogram // by operation
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(maxLatency/latencyTick), 3)
}

func newLatencies(operations []string) *latencies {
	l := &latencies{histograms: map[string]*hdrhistogram.Histogram{}}
	for _, name := range operations {
		l.histograms[name] = newHistogram()
	}
	return l
}

func (l *latencies) record(operation string, took time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.histograms[operation].RecordValue(int64(max(latencyTick, min(took, maxLatency)) / latencyTick))
}

func merged(all []*latencies, operation string) *hdrhistogram.Histogram {
	sum := newHistogram()
	for _, l := range all {
		l.mu.Lock()
		sum.Merge(l.histograms[operation])
		l.mu.Unlock()
	}
	return sum
}

type figures struct {
	elapsed     time.Duration
	interrupted bool
	operations  []operationFigures
}

type operationFigures struct {
	name                                        string
	count                                       int64
	fastest, mean, p50, p90, p99, p999, slowest time.Duration
}

func summarize(name string, h *hdrhistogram.Histogram) operationFigures {
	at := func(percent float64) time.Duration { return time.Duration(h.ValueAtQuantile(percent)) * latencyTick }
	f := operationFigures{name: name, count: h.TotalCount()}
	if f.count > 0 {
		f.fastest, f.slowest = time.Duration(h.Min())*latencyTick, time.Duration(h.Max())*latencyTick
		f.mean = time.Duration(h.Mean() * float64(latencyTick))
		f.p50, f.p90, f.p99, f.p999 = at(50), at(90), at(99), at(99.9)
	}
	return f
}

// errTimeUp is the cause that ends the clients' loops.
var errTimeUp = errors.New("the time of the bench is up")

// generateLoad lets all clients repeat their steps until the time is up, an interrupt, or the first error. It
// returns the figures until then, after all its goroutines have ended.
func (b *bench) generateLoad(ctx context.Context, steps []step) (*figures, error) {
	watch := stopwatch()
	working, finish := context.WithCancelCause(context.WithoutCancel(ctx))
	defer finish(nil)
	begin, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	time.AfterFunc(b.duration, func() { stop(errTimeUp) })
	// Running operations may end within --timeout; after an interrupt, sooner.
	defer context.AfterFunc(begin, func() {
		bound := b.timeout
		if ctx.Err() != nil {
			bound = min(bound, closeBound)
		}
		time.AfterFunc(bound, func() { finish(outOfTime{bound}) })
	})()
	all := make([]*latencies, len(steps))
	errs := make([]error, len(steps))
	var wait, watchers sync.WaitGroup
	for i, s := range steps {
		all[i] = newLatencies(b.workload.operations)
		wait.Go(func() {
			if errs[i] = b.repeatStep(begin, working, s, all[i], b.pace(i), watch); errs[i] != nil {
				errs[i] = fmt.Errorf("client %d: %w", i+1, errs[i])
				stop(errs[i])
			}
		})
	}
	watchers.Go(func() { b.printRates(begin, all, watch) })
	wait.Wait()
	stop(nil)
	watchers.Wait()
	f := &figures{elapsed: watch(), interrupted: ctx.Err() != nil}
	for _, name := range b.workload.operations {
		f.operations = append(f.operations, summarize(name, merged(all, name)))
	}
	if f.interrupted {
		return f, context.Cause(ctx)
	}
	return f, firstOf(errs)
}

// firstOf returns the clients' first error; mostly all have the same.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// pace returns when a client's nth step is due, so that all clients' steps are evenly spread; nil without
// --rate.
func (b *bench) pace(i int) func(n int64) time.Duration {
	if b.rate == 0 {
		return nil
	}
	every := float64(time.Second) / b.rate
	return func(n int64) time.Duration {
		return time.Duration(every * (float64(n)*float64(b.clients) + float64(i)))
	}
}

// repeatStep repeats a client's step until begin ends. With a pace, the step's first operation is timed from
// when the step was due.
func (b *bench) repeatStep(begin, working context.Context, s step, l *latencies, due func(int64) time.Duration, watch func() time.Duration) error {
	for n := int64(0); begin.Err() == nil; n++ {
		from := watch()
		if due != nil {
			if from = due(n); from >= b.duration {
				<-begin.Done() // the rate is over the whole duration
				return nil
			}
			select {
			case <-begin.Done():
				return nil
			case <-time.After(from - watch()):
			}
		}
		err := s(working, func(operation string, f func() error) error {
			if err := f(); err != nil {
				return err
			}
			ended := watch()
			took := ended - from
			from = ended
			return l.record(operation, took)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) printRates(ctx context.Context, all []*latencies, watch func() time.Duration) {
	style := term.StyleOf(b.err)
	if !style.Terminal || b.json() {
		return
	}
	ticker := time.NewTicker(benchReportPeriod)
	defer ticker.Stop()
	last, lastAt := map[string]int64{}, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at := watch()
		var parts []string
		for _, name := range b.workload.operations {
			h := merged(all, name)
			rate := float64(h.TotalCount()-last[name]) / (at - lastAt).Seconds()
			last[name] = h.TotalCount()
			parts = append(parts, fmt.Sprintf("%s %s/s", name, roughRate(rate)))
		}
		lastAt = at
		fmt.Fprintln(b.err, style.Paint(term.Secondary, fmt.Sprintf("%4.0fs  %s", at.Seconds(), strings.Join(parts, ", "))))
	}
}
