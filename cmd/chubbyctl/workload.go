package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/load"
)

type workload struct {
	takes      string   // its own flag: "size" or "locks"; may be empty
	caches     bool     // the clients cache what they read
	operations []string // what is measured: one operation, or its two parts
	does       func(b *bench) string
	// prepare creates what the i-th client needs, and returns what it repeats.
	prepare func(ctx context.Context, b *bench, c *client.Client, i int) (load.Operation, error)
}

func workloads() map[string]workload {
	return map[string]workload{
		"locks": {
			takes:      "locks",
			operations: []string{"acquire", "release"},
			does: func(b *bench) string {
				if b.locks == b.clients {
					return "acquire and release a lock of their own"
				}
				return fmt.Sprintf("acquire and release %s", term.Counted(b.locks, "lock"))
			},
			prepare: prepareLocks,
		},
		"writes": {
			takes:      "size",
			operations: []string{"write"},
			does:       func(b *bench) string { return fmt.Sprintf("write files of %d bytes", int64(b.size)) },
			prepare:    prepareWrites,
		},
		"reads": {
			takes:      "size",
			operations: []string{"read"},
			does:       func(b *bench) string { return fmt.Sprintf("read a file of %d bytes from the master", int64(b.size)) },
			prepare:    prepareReads,
		},
		"cached": {
			takes:      "size",
			caches:     true,
			operations: []string{"cached read"},
			does:       func(b *bench) string { return fmt.Sprintf("read a file of %d bytes from their caches", int64(b.size)) },
			prepare:    prepareReads,
		},
		"sessions": {
			operations: []string{"open", "close"},
			does:       func(*bench) string { return "open and close sessions" },
			prepare:    prepareSessions,
		},
	}
}

func (b *bench) openScratch(ctx context.Context, c *client.Client, name string, opts client.OpenOptions) (*client.Handle, error) {
	p, err := b.scratch.Join(name)
	if err != nil {
		return nil, err
	}
	opts.Create, opts.Kind, opts.Ephemeral = client.File, api.File, true // the end of the sessions removes it
	return c.Open(ctx, p.String(), opts)
}

func (b *bench) contents() []byte { return bytes.Repeat([]byte("x"), int(b.size)) }

func prepareLocks(ctx context.Context, b *bench, c *client.Client, i int) (load.Operation, error) {
	h, err := b.openScratch(ctx, c, strconv.Itoa(i%b.locks), client.OpenOptions{Write: true})
	return func(ctx context.Context, part func()) error {
		lock, err := h.Acquire(ctx, api.Exclusive, client.Reason("chubbyctl bench"))
		if err != nil {
			return err
		}
		part()
		return lock.Release(ctx)
	}, err
}

func prepareWrites(ctx context.Context, b *bench, c *client.Client, i int) (load.Operation, error) {
	h, err := b.openScratch(ctx, c, strconv.Itoa(i), client.OpenOptions{Write: true})
	contents := b.contents()
	return func(ctx context.Context, _ func()) error {
		_, err := h.SetContents(ctx, contents)
		return err
	}, err
}

func prepareReads(ctx context.Context, b *bench, c *client.Client, _ int) (load.Operation, error) {
	h, err := b.openScratch(ctx, c, "file", client.OpenOptions{Read: true, Contents: b.contents()})
	if err == nil {
		_, _, err = h.Contents(ctx) // fills the cache, if any
	}
	return func(ctx context.Context, _ func()) error {
		got, _, err := h.Contents(ctx)
		if err == nil && len(got) != int(b.size) {
			err = fmt.Errorf("%s has %d bytes, and %d were written", h.Path(), len(got), b.size)
		}
		return err
	}, err
}

func prepareSessions(_ context.Context, b *bench, c *client.Client, _ int) (load.Operation, error) {
	return func(ctx context.Context, part func()) error {
		opened, err := c.Cell().NewSession(ctx, b.session())
		if err != nil {
			return err
		}
		part()
		return opened.Close(ctx)
	}, nil
}
