package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A directory of the nodes that growNodes makes has so many of them, and so many goroutines make them.
const (
	nodesOfDirectory = 1_000
	nodeMakers       = 128
)

// growthPatience bounds the growth from one size to the next.
const growthPatience = 15 * time.Minute

// growNodes makes files, and leaves them.
func growNodes(ctx context.Context, c *chubby, from, to int) (_ closer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, growthPatience, fmt.Errorf("not all nodes were made within %v", growthPatience))
	defer cancel()
	config := c.config()
	config.NoCache = true
	cl, err := client.New(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cl.Close(context.WithoutCancel(ctx))) }()
	if err := cl.SetPrincipalQuota(ctx, config.As, api.Quota{Nodes: 2 * max(to, nodesOfDirectory)}); err != nil {
		return nil, err
	}
	create := func(name string, kind client.Creation) error {
		h, err := cl.Open(ctx, path(name), client.OpenOptions{Write: true, Create: kind})
		if err != nil {
			return err
		}
		return h.Close(ctx)
	}
	directory := func(i int) string { return fmt.Sprintf("d-%d", i/nodesOfDirectory) }
	for i := from - from%nodesOfDirectory; i < to; i += nodesOfDirectory {
		if err := create(directory(i), client.Directory); err != nil {
			return nil, err
		}
	}
	return nil, inParallel(nodeMakers, from, to, func(i int) error {
		return create(fmt.Sprintf("%s/f-%d", directory(i), i), client.File)
	})
}

// growSessions opens sessions that do nothing but stay, and returns what breaks their connections.
func growSessions(ctx context.Context, c *chubby, from, to int) (closer, error) {
	if from == to {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, growthPatience, fmt.Errorf("not all sessions were open within %v", growthPatience))
	defer cancel()
	k, err := c.OpenCrowd(ctx, to-from)
	return func(context.Context) error {
		defer k.Close()
		if n := k.Lost(); n > 0 {
			return fmt.Errorf("%d sessions were lost", n)
		}
		return nil
	}, err
}

// inParallel calls do for each number, a few at a time, and stops at the first error.
func inParallel(atOnce, from, to int, do func(int) error) error {
	var failed atomic.Bool
	errs := make([]error, atOnce)
	next := atomic.Int64{}
	next.Store(int64(from))
	var wait sync.WaitGroup
	for k := range atOnce {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(to) && !failed.Load(); i = next.Add(1) - 1 {
				if errs[k] = do(int(i)); errs[k] != nil {
					failed.Store(true)
					return
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
