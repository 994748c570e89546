package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
	list := rows(o)
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
			if err := runOnce(ctx, o, name, dir, list, &book); err != nil {
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

// runOnce measures every row of one system: most of them on one that it starts, and those that kill on
// others.
func runOnce(ctx context.Context, o options, name string, dir string, list []row, b *book) error {
	kills := func(r row) bool { return r.kills }
	err := started(ctx, o, name, dir, slices.DeleteFunc(slices.Clone(list), kills), b)
	if err != nil {
		return err
	}
	for _, r := range list {
		if !r.kills {
			continue
		}
		for left := o.kills; left > 0; left -= maxKills {
			o := o
			o.kills, o.allEtcd, o.etcdAttempt = min(left, maxKills), true, etcdAttempt // a client of the leader alone would be lost with it
			if err := started(ctx, o, name, dir, []row{r}, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// started starts a system, measures rows, and stops it.
func started(ctx context.Context, o options, name, parent string, list []row, b *book) (err error) {
	if len(list) == 0 {
		return nil
	}
	s, err := newSystem(name, o)
	if err != nil {
		return err
	}
	if _, ok := s.(mortal); !ok && list[0].kills {
		return nil
	}
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
		measured, err := measureRow(ctx, o, s, r, workers)
		if errors.Is(err, errNotMeasured) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		b.add(r, name, measured)
	}
	return nil
}

// measureRow returns errNotMeasured if the system does not have what the row measures.
func measureRow(ctx context.Context, o options, s system, r row, workers []worker) (sample, error) {
	if r.once != nil {
		return r.once(ctx, o, s)
	}
	ops, ok := operations(r, workers)
	if !ok {
		return sample{}, errNotMeasured
	}
	return load(ctx, r.plan(o, s), ops)
}

// operations returns the operations of the workers of a row, and false if they
// do not have it.
func operations(r row, workers []worker) ([]operation, bool) {
	var ops []operation
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
		line := struct {
			System  string   `json:"system"`
			Row     string   `json:"row"`
			Clients int      `json:"clients"`
			sample           // the medians
			Rounds  []sample `json:"rounds"`
		}{r.system, r.row.name, r.row.clients, medianOf(r.rounds), r.rounds}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
