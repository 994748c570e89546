package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// openAtOnce is how many connections are opened at the same time.
const openAtOnce = 16

// measureSessions measures what sessions cost that do nothing but stay: the processor time and the
// memory of all servers, less what these take without them. They are watched for four times as long as
// another row is measured.
func measureSessions(ctx context.Context, o options, s system) (_ sample, err error) {
	keeper, ok := s.(sessionKeeper)
	if !ok {
		return sample{}, errNotMeasured
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("not all sessions were open within three minutes"))
	defer cancel()
	before, err := cores(ctx, s, o.measure)
	if err != nil {
		return sample{}, err
	}
	memory := residentMemory(s.Processes())
	closeAll, err := openMany(ctx, o.sessions, keeper.OpenSession)
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx))) }()
	if err != nil {
		return sample{}, err
	}
	if err := sleep(ctx, 2*o.warm); err != nil {
		return sample{}, err
	}
	after, err := cores(ctx, s, 4*o.measure)
	if err != nil {
		return sample{}, err
	}
	return sample{Ops: int64(o.sessions), Cores: max(0, after-before), Memory: max(0, residentMemory(s.Processes())-memory)}, nil
}

// cores returns how many processors the servers keep busy.
func cores(ctx context.Context, s system, watched time.Duration) (float64, error) {
	began, used := time.Now(), processorTime(s.Processes())
	if err := sleep(ctx, watched); err != nil {
		return 0, err
	}
	return float64(processorTime(s.Processes())-used) / float64(time.Since(began)), nil
}

// openMany opens n of something, a few at a time. The closer that it returns, also with an error, closes
// those that were opened.
func openMany(ctx context.Context, n int, open func(context.Context) (closer, error)) (closer, error) {
	closers, errs := make([]closer, n), make([]error, n)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range openAtOnce {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				closers[i], errs[i] = open(ctx)
			}
		})
	}
	wait.Wait()
	err := errors.Join(errs...)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return func(ctx context.Context) error { return closeEach(ctx, closers) }, err
}

// closeEach calls closers, a few at a time. Nil ones are left out.
func closeEach(ctx context.Context, closers []closer) error {
	errs := make([]error, len(closers))
	slots := make(chan struct{}, openAtOnce)
	var wait sync.WaitGroup
	for i, c := range closers {
		if c == nil {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = c(ctx)
			<-slots
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
