package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// runRounds measures every system once a round, in turn, and prints the table.
func runRounds(ctx context.Context, o options, dir string, results *record, out io.Writer) error {
	list := rows(o)
	if len(list) == 0 {
		return fmt.Errorf("-rows %q: no row has that in its name", o.rows)
	}
	for round := range o.rounds {
		for _, o.at = range places(o) {
			for _, name := range o.systems {
				s, err := newSystem(name, o)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round+1, o.rounds, s.Version(), o.at)
				results.addSystem(name, s.Version())
				if err := runOnce(ctx, o, name, dir, list, results); err != nil {
					return fmt.Errorf("%s, %s: %w", name, o.at, err)
				}
			}
		}
	}
	return report(results, o, out)
}

// report prints the results, and writes the page if one is asked for.
func report(results *record, o options, out io.Writer) error {
	if o.disks {
		return results.reportDisks(o, out)
	}
	write := results.writeText
	if o.output == "json" {
		write = results.writeLines
	}
	err := write(out)
	if o.page != "" {
		err = errors.Join(err, results.writePage(o.page))
	}
	return err
}

// runOnce measures every row of one system: most of them on one that it starts, and those that need
// one to themselves on others.
func runOnce(ctx context.Context, o options, name string, dir string, list []row, results *record) error {
	alone := func(r row) bool { return r.possible != nil }
	if together := slices.DeleteFunc(slices.Clone(list), alone); len(together) > 0 {
		if err := measureStarted(ctx, o, name, dir, together, results); err != nil {
			return err
		}
	}
	for _, r := range list {
		s, err := newSystem(name, o)
		if err != nil {
			return err
		}
		if r.name == handOver || r.name == failover {
			o.allEtcd = true // a client of the leader alone would be lost with it
			o.etcdAttempt = etcdAttempt + 4*(o.at.Sync+o.at.Trip)
		}
		if !alone(r) || !r.possible(s) {
			continue
		}
		for left := o.kills; ; left -= maxKills {
			o := o
			if r.name == failover {
				o.kills = min(left, maxKills)
			}
			if err := measureStarted(ctx, o, name, dir, []row{r}, results); err != nil {
				return err
			}
			if r.name != failover || left <= maxKills {
				break
			}
		}
	}
	return nil
}

// measureStarted starts a system, measures rows, and stops it.
func measureStarted(ctx context.Context, o options, name, parent string, list []row, results *record) (err error) {
	s, err := startRunning(ctx, o, name, parent, maxClients(list))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	for _, r := range list {
		measured, err := measureRow(ctx, o, s.system, r, s.workers)
		if errors.Is(err, errNotMeasured) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		results.add(key{Row: r.name, Clients: r.clients, At: o.at}, name, measured)
	}
	return nil
}

// running is a system that runs, with workers that are connected.
type running struct {
	system
	name    string
	dir     string // its data
	workers []worker
	enter   func(context.Context) error // brings it into the state that is measured; nil if it has one only
}

// startRunning starts a system, with data below parent, and connects clients to it. After an error
// nothing is left.
func startRunning(ctx context.Context, o options, name, parent string, clients int) (*running, error) {
	s, err := newSystem(name, o)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "system-")
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &running{system: s, name: name, dir: dir}
	if r.workers, err = connect(ctx, s, clients); err != nil {
		return nil, errors.Join(err, r.stop(ctx))
	}
	return r, nil
}

// stop disconnects the workers, ends the system and removes its data.
func (r *running) stop(ctx context.Context) error {
	return errors.Join(disconnect(ctx, r.workers), r.Stop(), os.RemoveAll(r.dir))
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
	return runLoad(ctx, r.plan(o, s), ops)
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
	list := make([]worker, n)
	errs := inTurns(n, func(i int) (err error) {
		if list[i], err = s.Connect(ctx, i); err != nil {
			return fmt.Errorf("connect client %d: %w", i, err)
		}
		return nil
	})
	return slices.DeleteFunc(list, func(w worker) bool { return w == nil }), errs
}

// inTurns calls do for each number below n, for some at once: a client that connects, or leaves, waits for several commits.
func inTurns(n int, do func(i int) error) error {
	errs := make([]error, n)
	turns := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			errs[i] = do(i)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// disconnect closes every worker, even if ctx has ended.
func disconnect(ctx context.Context, workers []worker) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return inTurns(len(workers), func(i int) error { return workers[i].Close(ctx) })
}
