package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// result is one row of one system over all rounds.
type result struct {
	row    row
	system string
	rounds []sample
}

// runRounds measures every system once a round, in turn, and prints the table.
func runRounds(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "chubby-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	about, err := lookAtMachine(dir)
	if err != nil {
		return err
	}
	list := rows(o.rows)
	if len(list) == 0 {
		return fmt.Errorf("-rows %q: no row has that in its name", o.rows)
	}
	var book book
	for round := range o.rounds {
		for _, name := range o.systems {
			s, err := newSystem(name, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, s.Version())
			book.versions(name, s.Version())
			if err := runOnce(ctx, o, name, s, dir, list, &book); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if o.output == "json" {
		err = writeJSON(out, about, o, book.results)
	} else {
		err = writeText(out, about, o, &book)
	}
	if err != nil || o.page == "" {
		return err
	}
	return writePage(o.page, about, o, &book)
}

// runOnce starts a system, measures every row, and stops it.
func runOnce(ctx context.Context, o options, name string, s system, parent string, list []row, b *book) (err error) {
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := s.Start(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	workers, err := connect(ctx, s, maxClients(list))
	defer func() { err = errors.Join(err, disconnect(ctx, workers)) }()
	if err != nil {
		return err
	}
	for _, r := range list {
		ops, ok := operations(r, workers)
		if !ok {
			continue
		}
		measured, err := load(ctx, o.warm, o.measure, ops)
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		b.add(r, name, measured)
	}
	return nil
}

// operations returns the operations of the workers of a row, and false if they
// do not have it.
func operations(r row, workers []worker) ([]func(context.Context) error, bool) {
	var ops []func(context.Context) error
	for _, w := range workers[:r.clients] {
		op := r.op(w)
		if op == nil {
			return nil, false
		}
		ops = append(ops, op)
	}
	return ops, true
}

// connect returns the workers that it could connect, also with an error.
func connect(ctx context.Context, s system, n int) ([]worker, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not all clients connected within a minute"))
	defer cancel()
	var list []worker
	for i := range n {
		w, err := s.Connect(ctx, i)
		if err != nil {
			return list, fmt.Errorf("connect client %d: %w", i, err)
		}
		list = append(list, w)
	}
	return list, nil
}

// disconnect closes every worker, even if ctx has ended.
func disconnect(ctx context.Context, workers []worker) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var errs []error
	for _, w := range workers {
		errs = append(errs, w.Close(ctx))
	}
	return errors.Join(errs...)
}

// writeJSON writes one line about the machine and one for each result.
func writeJSON(out io.Writer, about machine, o options, results []*result) error {
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(map[string]any{"machine": about, "members": members, "rounds": o.rounds, "measure_s": o.measure.Seconds()}); err != nil {
		return err
	}
	for _, r := range results {
		m := r.median()
		line := struct {
			System  string        `json:"system"`
			Row     string        `json:"row"`
			Clients int           `json:"clients"`
			Rate    float64       `json:"rate"`
			P50     time.Duration `json:"p50_ns"`
			P99     time.Duration `json:"p99_ns"`
			Rounds  []sample      `json:"rounds"`
		}{r.system, r.row.name, r.row.clients, m.Rate, m.P50, m.P99, r.rounds}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
