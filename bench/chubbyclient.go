package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func (c *chubby) Connect(ctx context.Context, i int) (w worker, err error) {
	cl, err := client.New(ctx, c.config())
	if err != nil {
		return nil, err
	}
	cw := &chubbyWorker{client: cl, value: bytes.Repeat([]byte{'x'}, contents)}
	defer func() {
		if err != nil {
			err = errors.Join(err, cw.Close(ctx))
		}
	}()
	options := client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: api.DefaultLockDelay}
	for _, open := range []struct {
		name string
		to   **client.Handle
	}{{fmt.Sprintf("lock-%d", i), &cw.handles[own]}, {"shared", &cw.handles[shared]}, {fmt.Sprintf("file-%d", i), &cw.file}} {
		if *open.to, err = cl.Open(ctx, path(open.name), options); err != nil {
			return nil, err
		}
	}
	options.CacheLock = true
	if cw.kept, err = cl.Open(ctx, path(fmt.Sprintf("kept-%d", i)), options); err != nil {
		return nil, err
	}
	if err = cw.Write(ctx); err != nil {
		return nil, err
	}
	uncached := c.config()
	uncached.NoCache = true
	if cw.uncached, err = client.New(ctx, uncached); err != nil {
		return nil, err
	}
	if cw.fresh, err = cw.uncached.Open(ctx, path(fmt.Sprintf("file-%d", i)), client.OpenOptions{Read: true}); err != nil {
		return nil, err
	}
	if c.caching {
		return cachingWorker{cw}, nil
	}
	return cw, nil
}

type chubbyWorker struct {
	client  *client.Client
	handles [locks]*client.Handle
	held    *client.Lock
	kept    *client.Handle // of a lock that stays when it is released
	file    *client.Handle
	value   []byte

	uncached *client.Client // a session that keeps no cache
	fresh    *client.Handle // of the file in that session
}

func (w *chubbyWorker) Lock(ctx context.Context, l lock) (err error) {
	w.held, err = w.handles[l].Acquire(ctx, api.Exclusive)
	return err
}

func (w *chubbyWorker) Unlock(ctx context.Context, _ lock) error { return w.held.Release(ctx) }

func (w *chubbyWorker) Write(ctx context.Context) error {
	_, err := w.file.SetContents(ctx, w.value)
	return err
}

func (w *chubbyWorker) Read(ctx context.Context) error { return readAll(ctx, w.fresh) }

// Stat implements mixer.
func (w *chubbyWorker) Stat(ctx context.Context) error {
	_, err := w.fresh.Stat(ctx)
	return err
}

// Reopen implements mixer.
func (w *chubbyWorker) Reopen(ctx context.Context) error {
	h, err := w.uncached.Open(ctx, w.fresh.Path(), client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	return h.Close(ctx)
}

func readAll(ctx context.Context, h *client.Handle) error {
	text, _, err := h.Contents(ctx)
	if err == nil && len(text) != contents {
		err = fmt.Errorf("read %d bytes of %s, not %d", len(text), h.Path(), contents)
	}
	return err
}

func (w *chubbyWorker) Close(ctx context.Context) error {
	var err error
	if w.uncached != nil {
		err = w.uncached.Close(ctx)
	}
	return errors.Join(err, w.client.Close(ctx))
}

// cachingWorker is a worker of a client library that keeps a cache.
type cachingWorker struct{ *chubbyWorker }

func (w cachingWorker) ReadCached(ctx context.Context) error {
	return readAll(ctx, w.file)
}

func (w cachingWorker) LockCached(ctx context.Context, held func()) error {
	l, err := w.kept.Acquire(ctx, api.Exclusive)
	if err != nil {
		return err
	}
	held()
	return l.Release(ctx)
}

func (c *chubby) OpenSession(ctx context.Context) (closer, error) {
	cl, err := client.New(ctx, c.config())
	if err != nil {
		return nil, err
	}
	return cl.Close, nil
}

func (c *chubby) HandOver(ctx context.Context) (err error) {
	cl, err := client.New(ctx, c.config())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close(ctx)) }()
	_, err = cl.Transfer(ctx, "")
	return err
}

func (c *chubby) Watch(ctx context.Context, told, armed func()) (closer, error) {
	cl, err := client.New(ctx, c.config())
	if err != nil {
		return nil, err
	}
	h, err := cl.Open(ctx, path("watched"), client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
	if err != nil {
		return nil, errors.Join(err, cl.Close(ctx))
	}
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { // ends with alive, or with the session; the closer waits for it
		defer close(done)
		for event, err := range h.Events(alive) {
			if err != nil {
				return
			}
			if event.Kind == api.EventContentsModified {
				told()
				armed()
			}
		}
	}()
	return func(ctx context.Context) error {
		cancel()
		<-done
		return cl.Close(ctx)
	}, nil
}

func (c *chubby) Changer(ctx context.Context) (func(context.Context) error, closer, error) {
	cl, err := client.New(ctx, c.config())
	if err != nil {
		return nil, nil, err
	}
	h, err := cl.Open(ctx, path("watched"), client.OpenOptions{Write: true})
	if err != nil {
		return nil, nil, errors.Join(err, cl.Close(ctx))
	}
	w := &chubbyWorker{file: h, value: bytes.Repeat([]byte{'x'}, contents)}
	return w.Write, cl.Close, nil
}
