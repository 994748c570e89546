package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// axis is something of which a cell can have more and more: -growth measures the same operations at each size.
type axis struct {
	name  string
	sizes []int
	// grow brings a running cell to a size, from the one before. It is nil if each size needs a cell of its own.
	grow func(ctx context.Context, c *chubby, from, to int) (closer, error)
	// rows are measured at a size.
	rows func(size int) []row
	// members is the number of replicas at a size; nil for that of other rows.
	members func(size int) int
}

// axes lists what -growth measures, up to the sizes that the flags allow.
func axes(o options) []axis {
	upTo := func(most int, sizes ...int) []int {
		return slices.DeleteFunc(sizes, func(size int) bool { return size > most })
	}
	lockers := func(int) []row {
		return []row{{name: "lock+unlock", clients: 1, op: take(own)}, {name: "lock+unlock", clients: 64, op: take(own)}}
	}
	return []axis{
		{name: "nodes", sizes: upTo(o.mostNodes, 0, 1_000, 10_000, 100_000, 1_000_000), grow: growNodes, rows: lockers},
		{name: "sessions", sizes: upTo(o.mostSessions, 0, 1_000, 10_000, 100_000), grow: growSessions, rows: lockers},
		{name: "replicas", sizes: []int{1, 3, 5, 7}, rows: lockers, members: func(size int) int { return size }},
		{name: "contenders", sizes: []int{1, 5, 16, 64, 256, 1000}, rows: func(size int) []row {
			return []row{{name: oneLock, clients: size, op: take(shared)}}
		}},
	}
}

// runGrowth measures each axis on cells of its own.
func runGrowth(ctx context.Context, o options, dir string, results *record, out io.Writer) error {
	for _, a := range axes(o) {
		if err := a.measure(ctx, o, dir, results); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	if err := results.growthTable().writeText(out); err != nil || o.page == "" {
		return err
	}
	return results.writeGrowthPage(o.page)
}

// measure measures an axis: on one cell that grows, or on one for each size.
func (a axis) measure(ctx context.Context, o options, parent string, results *record) error {
	if a.grow != nil {
		return a.measureCell(ctx, o, parent, a.sizes, results)
	}
	for _, size := range a.sizes {
		if err := a.measureCell(ctx, o, parent, []int{size}, results); err != nil {
			return err
		}
	}
	return nil
}

func (a axis) measureCell(ctx context.Context, o options, parent string, sizes []int, results *record) (err error) {
	dir, err := os.MkdirTemp(parent, "cell-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := &chubby{repo: o.repo, logStore: o.logStore}
	if a.members != nil {
		c.members = a.members(sizes[0])
	}
	if err := c.Start(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	results.addSystem("chubby", c.Version())
	workers, err := connect(ctx, c, maxClients(a.rows(sizes[len(sizes)-1])))
	defer func() { err = errors.Join(err, disconnect(ctx, workers)) }()
	if err != nil {
		return err
	}
	was := 0
	for _, size := range sizes {
		fmt.Fprintf(os.Stderr, "%s: %d\n", a.name, size)
		if a.grow != nil {
			shrink, failed := a.grow(ctx, c, was, size)
			if shrink != nil {
				defer func() { err = errors.Join(err, shrink(context.WithoutCancel(ctx))) }()
			}
			if failed != nil {
				return failed
			}
			was = size
			if err := sleep(ctx, o.settle); err != nil {
				return err
			}
		}
		if err := a.measureSize(ctx, o, c, size, workers, results); err != nil {
			return err
		}
	}
	return nil
}

func (a axis) measureSize(ctx context.Context, o options, c *chubby, size int, workers []worker, results *record) error {
	for _, r := range a.rows(size) {
		measured, err := measureRow(ctx, o, c, r, workers)
		if err != nil {
			return fmt.Errorf("%d: %s: %w", size, r, err)
		}
		measured.Memory = residentMemory(c.Processes())
		results.add(key{Row: growthRow(a.name, size, r.name), Clients: r.clients}, "chubby", measured)
	}
	return nil
}
