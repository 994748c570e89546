package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func (e *etcd) Connect(ctx context.Context, i int) (worker, error) {
	c, err := e.dial(e.clientEndpoints()...)
	if err != nil {
		return nil, err
	}
	// A session's context bounds the whole session, so it cannot be ctx, which ends when the
	// connection is made. Twelve seconds is Chubby's lease.
	session, err := concurrency.NewSession(c, concurrency.WithTTL(12))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	w := &etcdWorker{
		client: c, session: session,
		locks: [locks]*concurrency.Mutex{
			own:    concurrency.NewMutex(session, fmt.Sprintf("/bench/lock/%d", i)),
			shared: concurrency.NewMutex(session, "/bench/lock/shared"),
		},
		key:     fmt.Sprintf("/bench/file/%d", i),
		value:   string(bytes.Repeat([]byte{'x'}, contents)),
		attempt: e.attempt,
	}
	if err := w.Write(ctx); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

type etcdWorker struct {
	client     *clientv3.Client
	session    *concurrency.Session
	locks      [locks]*concurrency.Mutex
	key, value string
	attempt    time.Duration // bounds a write; 0 is no bound
}

func (w *etcdWorker) Lock(ctx context.Context, l lock) error   { return w.locks[l].Lock(ctx) }
func (w *etcdWorker) Unlock(ctx context.Context, l lock) error { return w.locks[l].Unlock(ctx) }

func (w *etcdWorker) Write(ctx context.Context) error {
	if w.attempt > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.attempt)
		defer cancel()
	}
	_, err := w.client.Put(ctx, w.key, w.value)
	return err
}

func (w *etcdWorker) Read(ctx context.Context) error {
	reply, err := w.client.Get(ctx, w.key)
	if err != nil {
		return err
	}
	if len(reply.Kvs) != 1 || len(reply.Kvs[0].Value) != contents {
		return fmt.Errorf("etcd returned %d values for %s", len(reply.Kvs), w.key)
	}
	return nil
}

// Stat implements mixer.
func (w *etcdWorker) Stat(ctx context.Context) error {
	reply, err := w.client.Get(ctx, w.key, clientv3.WithKeysOnly())
	if err == nil && len(reply.Kvs) != 1 {
		err = fmt.Errorf("etcd returned %d keys for %s", len(reply.Kvs), w.key)
	}
	return err
}

// Reopen implements mixer.
func (w *etcdWorker) Reopen(ctx context.Context) error { return w.Stat(ctx) }

func (w *etcdWorker) Close(context.Context) error {
	return errors.Join(w.session.Close(), w.client.Close())
}

// etcdWatched is the key that all watchers watch.
const etcdWatched = "/bench/watched"

func (e *etcd) Watch(ctx context.Context, told, armed func()) (closer, error) {
	c, err := e.dial(e.clientEndpoints()...)
	if err != nil {
		return nil, err
	}
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	changes := c.Watch(alive, etcdWatched, clientv3.WithCreatedNotify())
	done := make(chan struct{})
	end := func(context.Context) error {
		cancel()
		<-done
		return c.Close()
	}
	created := make(chan struct{})
	go func() { // ends with alive
		defer close(done)
		for change := range changes {
			if change.Created {
				close(created)
			}
			for range change.Events {
				told()
				armed()
			}
		}
	}()
	select {
	case <-created:
		return end, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), end(ctx))
	}
}

func (e *etcd) Changer(context.Context) (func(context.Context) error, closer, error) {
	c, err := e.dial(e.clientEndpoints()...)
	if err != nil {
		return nil, nil, err
	}
	w := &etcdWorker{client: c, key: etcdWatched, value: string(bytes.Repeat([]byte{'x'}, contents))}
	return w.Write, func(context.Context) error { return c.Close() }, nil
}

func (e *etcd) OpenSession(context.Context) (closer, error) {
	c, err := e.dial(e.clientEndpoints()...)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(12)) // its own context bounds it, see Connect
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return func(context.Context) error { return errors.Join(session.Close(), c.Close()) }, nil
}

// etcdCrowd is very many leases that are kept alive.
type etcdCrowd struct {
	stop    context.CancelFunc
	wait    sync.WaitGroup
	replies atomic.Int64
	lost    atomic.Int64
}

// OpenCrowd implements crowdKeeper.
func (e *etcd) OpenCrowd(ctx context.Context, sessions int) (crowd, error) {
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &etcdCrowd{stop: stop}
	clients := make([]*clientv3.Client, connectionsOf(sessions))
	for i := range clients {
		c, err := e.dial(e.clientEndpoints()...)
		if err != nil {
			return k, err
		}
		clients[i] = c
		k.wait.Go(func() {
			<-alive.Done()
			_ = c.Close() // the leases run out
		})
	}
	return k, inParallel(4*openAtOnce, 0, sessions, func(i int) error {
		c := clients[i%len(clients)]
		lease, err := c.Grant(ctx, 12)
		if err != nil {
			return err
		}
		replies, err := c.KeepAlive(alive, lease.ID)
		if err != nil {
			return err
		}
		k.wait.Go(func() {
			for range replies {
				k.replies.Add(1)
			}
			if alive.Err() == nil {
				k.lost.Add(1)
			}
		})
		return nil
	})
}

// Replies implements crowd.
func (k *etcdCrowd) Replies() int64 { return k.replies.Load() }

// Lost implements crowd.
func (k *etcdCrowd) Lost() int { return int(k.lost.Load()) }

// Close implements crowd.
func (k *etcdCrowd) Close() {
	k.stop()
	k.wait.Wait()
}
