package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// spinners is the number of busy loops during a steady check: the number of
// processors of this project's smallest machine.
const spinners = 2

// runSteady keeps a system under load for o.steady, with busy loops beside it. It fails if the
// leader has changed or an operation has failed: a busy machine must not cause a fail-over.
func runSteady(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "chubby-steady-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nwhat the processes wrote is kept in %s", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	s, err := newSystem(o.systems[0], o)
	if err != nil {
		return err
	}
	if err := s.Start(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	for i := range spinners {
		busy, err := startChild(dir, fmt.Sprintf("busy%d", i+1), nil, spinCommand)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, busy.stop()) }()
	}
	return steady(ctx, o, s, out)
}

// steady measures the rows again and again until the time is up.
func steady(ctx context.Context, o options, s system, out io.Writer) (err error) {
	list := slices.DeleteFunc(rows(o), func(r row) bool { return r.op == nil || r.limit > 0 })
	if len(list) == 0 {
		return fmt.Errorf("-rows %q: no row that can be repeated has that in its name", o.rows)
	}
	workers, err := connect(ctx, s, maxClients(list))
	defer func() { err = errors.Join(err, disconnect(ctx, workers)) }()
	if err != nil {
		return err
	}
	before, err := s.Term(ctx)
	if err != nil {
		return fmt.Errorf("ask for the term: %w", err)
	}
	fmt.Fprintf(out, "%s under load beside %d busy loops for %v\nterm before: %d\n", s.Version(), spinners, o.steady, before)
	end := time.Now().Add(o.steady)
	var failed []error
	for turn := 0; ctx.Err() == nil && time.Now().Before(end); turn++ {
		r := list[turn%len(list)]
		ops, ok := operations(r, workers)
		if !ok {
			continue
		}
		measured, err := runLoad(ctx, r.plan(o, s), ops)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r, err))
			fmt.Fprintf(out, "%-18s failed: %v\n", r, err)
			break
		}
		fmt.Fprintf(out, "%-18s %8.0f /s  p50 %-8s p99 %-8s longest %s\n", r, measured.Rate, readable(measured.P50), readable(measured.P99), readable(measured.Max))
	}
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	after, err := s.Term(ask)
	if err != nil {
		return errors.Join(append(failed, fmt.Errorf("ask for the term: %w", err))...)
	}
	fmt.Fprintf(out, "term after:  %d\n", after)
	if after != before {
		failed = append(failed, fmt.Errorf("the term went from %d to %d: the cell changed its master because the machine was busy", before, after))
	}
	if ctx.Err() != nil {
		failed = append(failed, fmt.Errorf("stopped early: %w", context.Cause(ctx)))
	}
	return errors.Join(failed...)
}
