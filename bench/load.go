package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// operation is one operation of a worker. One that takes a lock calls held when it has it.
type operation func(ctx context.Context, held func()) error

// plan says how long a load lasts.
type plan struct {
	warm, measure time.Duration // what is not counted, and then what is
	limit         int64         // operations counted, after which it ends; 0 is no limit
	rate          float64       // operations a second of all workers, begun at set times; 0 is a closed loop
	used          func() usage  // nil if nobody asks for processor time
}

// histories is what one worker has recorded.
type histories struct {
	whole, wait *hdrhistogram.Histogram // operations, and within them until the lock was held
	late        *hdrhistogram.Histogram // operations that should have begun, and did not
}

func newHistories() histories {
	one := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest/tick), 3) }
	return histories{whole: one(), wait: one(), late: one()}
}

// load runs each operation in its own loop, all concurrently, as long as the plan says. It counts the
// operations that end within the measurement; if there is none, because a disk takes longer than that, it counts the
// first that ends, and the rate is that of the longer time; what was used is that of the measurement. It returns at the first error.
func load(ctx context.Context, p plan, ops []operation) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, p.warm+p.measure+patience)
	defer cancel()
	begin := time.Now().Add(p.warm)
	l := &loops{begin: begin, end: begin.Add(p.measure), limit: p.limit, stop: make(chan struct{})}
	if p.rate > 0 {
		l.every = time.Duration(float64(len(ops)) * float64(time.Second) / p.rate)
	}
	origin := time.Now()
	used := l.watchUsage(p.used)
	var wait sync.WaitGroup
	each := make([]histories, len(ops))
	errs := make([]error, len(ops))
	for i, op := range ops {
		each[i] = newHistories()
		wait.Go(func() {
			first := origin.Add(l.every * time.Duration(i) / time.Duration(len(ops)))
			errs[i] = l.repeat(ctx, op, first, each[i])
			if errs[i] != nil {
				errs[i] = fmt.Errorf("client %d: %w", i, errs[i])
				l.finish()
			}
		})
	}
	wait.Wait()
	took := min(time.Since(begin), p.measure)
	if late := l.late.Load(); late > 0 {
		took = time.Duration(late)
	}
	l.finish()
	spent := <-used
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	s := summarize(each, took)
	if s.Ops > 0 {
		s.ServerCPU = spent.servers / time.Duration(s.Ops)
		s.ClientCPU = spent.generator / time.Duration(s.Ops)
		s.Bytes = spent.sent / s.Ops
	}
	return s, nil
}

// loops is what the loops of one load share.
type loops struct {
	begin, end time.Time
	limit      int64
	every      time.Duration // from one operation of a worker to its next; 0 is at once
	counted    atomic.Int64
	late       atomic.Int64 // when the first operation has ended, from the beginning, if the measurement was over by then
	once       sync.Once
	stop       chan struct{} // closed when all loops should end
}

func (l *loops) finish() { l.once.Do(func() { close(l.stop) }) }

// watchUsage returns a channel that yields what was used within the measurement, when it has ended.
func (l *loops) watchUsage(used func() usage) <-chan usage {
	result := make(chan usage, 1)
	if used == nil {
		result <- usage{}
		return result
	}
	go func() { // ends with the load, which waits for its result
		l.waitUntil(l.begin)
		before := used()
		l.waitUntil(l.end)
		result <- used().since(before)
	}()
	return result
}

// waitUntil waits for a time or the end of the load.
func (l *loops) waitUntil(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.stop:
	}
}

// repeat repeats op until the end, until the limit is reached, or until it fails. If the operations have
// set times, the first has its at first.
func (l *loops) repeat(ctx context.Context, op operation, first time.Time, h histories) error {
	var got time.Time
	held := func() { got = time.Now() }
	for due := first; ; due = due.Add(l.every) {
		select {
		case <-l.stop:
			return nil
		default:
		}
		started := time.Now()
		if !started.Before(l.end) {
			return l.recordOverdue(due, h)
		}
		if l.every > 0 {
			if due.After(l.end) {
				return nil
			}
			l.waitUntil(due)
			started = due // an operation that begins late has waited since then
		}
		got = time.Time{}
		if err := op(ctx, held); err != nil {
			return err
		}
		ended := time.Now()
		if !ended.After(l.begin) || ended.After(l.end) && (l.counted.Load() > 0 || !l.late.CompareAndSwap(0, int64(ended.Sub(l.begin)))) {
			continue
		}
		count := l.counted.Add(1)
		if l.limit > 0 && count > l.limit {
			return nil
		}
		if err := h.record(started, got, ended); err != nil {
			return err
		}
		if count == l.limit {
			l.finish()
		}
	}
}

// recordOverdue records the operations that should have begun before the end: they have waited until
// then at least. Without them a system that cannot keep up would seem to.
func (l *loops) recordOverdue(due time.Time, h histories) error {
	for ; l.every > 0 && due.Before(l.end); due = due.Add(l.every) {
		if err := h.late.RecordValue(ticks(l.end.Sub(due))); err != nil {
			return err
		}
	}
	return nil
}

// record records an operation; got is when it had its lock, zero if it takes none.
func (h histories) record(started, got, ended time.Time) error {
	if !got.IsZero() {
		if err := h.wait.RecordValue(ticks(got.Sub(started))); err != nil {
			return err
		}
	}
	return h.whole.RecordValue(ticks(ended.Sub(started)))
}

func ticks(d time.Duration) int64 { return max(1, min(int64(d/tick), int64(longest/tick))) }
