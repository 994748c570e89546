package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are recorded from 100 ns to ten minutes, with three digits.
const (
	tick    = 100 * time.Nanosecond
	longest = 10 * time.Minute
)

// Operation is one operation of a client. One of two parts calls part between them.
type Operation func(ctx context.Context, part func()) error

// Plan says how long a load lasts.
type Plan struct {
	Warm, Measure time.Duration // what is not counted, and then what is
	Limit         int64         // operations counted, after which it ends; 0 is no limit
	Rate          float64       // operations a second of all clients, begun at set times; 0 is a closed loop
	// Patience returns how long operations may take that run when no more begin, which may be because of an
	// interrupt, and what is the cause that ends their contexts then.
	Patience func(interrupted bool) (time.Duration, error)
}

// Result is what was measured, in ticks. The latencies are also those of operations that do not count: that ended
// after the measurement, or should have begun within it and did not, which had waited until its end at least. Without
// them a system that does not keep up would seem to.
type Result struct {
	Took          time.Duration           // of the measurement
	Whole         *hdrhistogram.Histogram // of the operations
	First, Second *hdrhistogram.Histogram // of their parts, if they have two
	Counts        []int64                 // the operations of each client
}

// Count returns the number of operations of all clients.
func (r Result) Count() (n int64) {
	for _, one := range r.Counts {
		n += one
	}
	return n
}

// Time returns so many ticks as a duration.
func Time[T int64 | float64](ticks T) time.Duration { return time.Duration(ticks) * tick }

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest/tick), 3) }

// record adds a latency to a histogram, which it makes: most clients need one of four.
func record(h **hdrhistogram.Histogram, d time.Duration) error {
	if *h == nil {
		*h = newHistogram()
	}
	return (*h).RecordValue(max(1, min(int64(d/tick), int64(longest/tick))))
}

// Run repeats each operation in a loop of its own, all concurrently, as long as the plan says, until ctx ends, or
// until the first error. It counts the operations that end within the measurement; if all take longer than
// that, it counts those under way, and the measurement took as long. The result is what was measured until the
// end, also with an error.
func Run(ctx context.Context, p Plan, ops []Operation) (Result, error) {
	working, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	going, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(going, func() {
		patience, late := p.Patience(ctx.Err() != nil)
		time.AfterFunc(patience, func() { cut(late) })
	})()
	origin := time.Now()
	l := &loops{Plan: p, begin: origin.Add(p.Warm), end: origin.Add(p.Warm + p.Measure), stop: stop}
	if p.Rate > 0 {
		l.every = time.Duration(float64(len(ops)) * float64(time.Second) / p.Rate)
	}
	time.AfterFunc(p.Warm+p.Measure, stop)
	var wait sync.WaitGroup
	each, over := make([]tally, len(ops)), make([]tally, len(ops)) // over: of what ended after the measurement
	errs := make([]error, len(ops))
	for i, op := range ops {
		wait.Go(func() {
			first := origin.Add(l.every * time.Duration(i) / time.Duration(len(ops)))
			if err := l.repeat(going, working, op, first, &each[i], &over[i]); err != nil {
				if late := context.Cause(working); late != nil && !errors.Is(err, late) {
					err = fmt.Errorf("%w: %w", late, err)
				}
				errs[i] = fmt.Errorf("client %d: %w", i+1, err)
				stop()
			}
		})
	}
	wait.Wait()
	all := Result{Took: max(0, min(time.Since(l.begin), p.Measure)), Whole: newHistogram(), First: newHistogram(), Second: newHistogram()}
	if l.counted.Load() == 0 && l.late.Load() > 0 {
		all.Took = time.Duration(l.late.Load())
	}
	for i := range each {
		in, after := each[i], over[i]
		for to, from := range map[*hdrhistogram.Histogram][]*hdrhistogram.Histogram{
			all.Whole: {in.whole, after.whole}, all.First: {in.first, after.first}, all.Second: {in.second, after.second},
		} {
			for _, h := range from {
				if h != nil {
					to.Merge(h)
				}
			}
		}
		if l.counted.Load() == 0 {
			in = after
		}
		all.Counts = append(all.Counts, in.ended)
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, cmp.Or(errs...) // mostly all clients have the same
}

// loops is what the loops of one load share.
type loops struct {
	Plan
	begin, end time.Time
	every      time.Duration // from one operation of a client to its next; 0 is at once
	stop       func()        // no more operations begin
	counted    atomic.Int64
	late       atomic.Int64 // when the last operation has ended, from the beginning, if the measurement was over by then
}

// repeat repeats op until going ends, or until it fails. If the operations have set times, the first has its at
// first.
func (l *loops) repeat(going, working context.Context, op Operation, first time.Time, in, over *tally) error {
	var parted time.Time
	part := func() { parted = time.Now() }
	for due := first; ; due = due.Add(l.every) {
		started := time.Now()
		if !started.Before(l.end) {
			return l.recordLate(due, over)
		}
		if going.Err() != nil {
			return nil //nolint:nilerr // the end of the load is no failure of its operations
		}
		if l.every > 0 {
			if !waitUntil(going, due) {
				continue
			}
			started = due // an operation that begins late has waited since then
		}
		parted = time.Time{}
		if err := op(working, part); err != nil {
			return err
		}
		ended := time.Now()
		if !ended.After(l.begin) {
			continue
		}
		if ended.After(l.end) {
			l.endLate(int64(ended.Sub(l.begin)))
			if err := over.record(started, parted, ended); err != nil {
				return err
			}
			continue
		}
		count := l.counted.Add(1)
		if l.Limit > 0 && count > l.Limit {
			return nil
		}
		if err := in.record(started, parted, ended); err != nil {
			return err
		}
		if count == l.Limit {
			l.stop()
		}
	}
}

// endLate records when an operation has ended, after the measurement.
func (l *loops) endLate(at int64) {
	for last := l.late.Load(); at > last && !l.late.CompareAndSwap(last, at); last = l.late.Load() {
		continue
	}
}

// waitUntil waits. It returns false if ctx ends before that time, and not if it ends just then.
func waitUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return !time.Now().Before(at)
	}
}

// recordLate records the operations that should have begun before the end: they have waited until
// then at least.
func (l *loops) recordLate(due time.Time, over *tally) error {
	for ; l.every > 0 && due.Before(l.end); due = due.Add(l.every) {
		if err := record(&over.whole, l.end.Sub(due)); err != nil {
			return err
		}
	}
	return nil
}

// tally is what one client has recorded.
type tally struct {
	whole, first, second *hdrhistogram.Histogram
	ended                int64
}

// record records an operation; parted is when its second part began, zero if it has only one.
func (t *tally) record(started, parted, ended time.Time) error {
	t.ended++
	if !parted.IsZero() {
		if err := cmp.Or(record(&t.first, parted.Sub(started)), record(&t.second, ended.Sub(parted))); err != nil {
			return err
		}
	}
	return record(&t.whole, ended.Sub(started))
}
