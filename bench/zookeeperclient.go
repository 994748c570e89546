package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

func (z *zookeeper) Connect(ctx context.Context, i int) (worker, error) {
	conn, err := z.dial()
	if err != nil {
		return nil, err
	}
	acl := zk.WorldACL(zk.PermAll)
	w := &zookeeperWorker{
		conn:  conn,
		locks: [locks]*zk.Lock{own: zk.NewLock(conn, fmt.Sprintf("/bench/lock/%d", i), acl), shared: zk.NewLock(conn, "/bench/lock/shared", acl)},
		path:  fmt.Sprintf("/bench/file/%d", i),
		value: bytes.Repeat([]byte{'x'}, contents),
	}
	err = w.call(ctx, func() error {
		_, err := conn.Create(w.path, w.value, 0, acl)
		return err
	})
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

type zookeeperWorker struct {
	conn  *zk.Conn
	locks [locks]*zk.Lock
	path  string
	value []byte
}

// call bounds an operation of the library, which takes no context: when ctx ends the connection is
// closed, and with it the worker is of no use any more.
func (w *zookeeperWorker) call(ctx context.Context, operation func() error) error {
	stop := context.AfterFunc(ctx, w.conn.Close)
	err := operation()
	if !stop() {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

func (w *zookeeperWorker) Lock(ctx context.Context, l lock) error {
	return w.call(ctx, w.locks[l].Lock)
}

func (w *zookeeperWorker) Unlock(ctx context.Context, l lock) error {
	return w.call(ctx, w.locks[l].Unlock)
}

func (w *zookeeperWorker) Write(ctx context.Context) error {
	return w.call(ctx, func() error {
		_, err := w.conn.Set(w.path, w.value, -1)
		return err
	})
}

// Read syncs first: a server answers a read from what it has applied, which may be old.
func (w *zookeeperWorker) Read(ctx context.Context) error {
	return w.call(ctx, func() error {
		if _, err := w.conn.Sync(w.path); err != nil {
			return err
		}
		text, _, err := w.conn.Get(w.path)
		if err == nil && len(text) != contents {
			err = fmt.Errorf("read %d bytes of %s, not %d", len(text), w.path, contents)
		}
		return err
	})
}

func (w *zookeeperWorker) Close(context.Context) error {
	w.conn.Close()
	return nil
}

// zookeeperWatched is the node that all watchers watch.
const zookeeperWatched = "/bench/watched"

// Watch sets the watch again after each change: a watch of ZooKeeper fires once.
func (z *zookeeper) Watch(ctx context.Context, told, armed func()) (closer, error) {
	conn, err := z.dial()
	if err != nil {
		return nil, err
	}
	w := &zookeeperWorker{conn: conn}
	var fired <-chan zk.Event
	arm := func() (err error) {
		_, _, fired, err = conn.GetW(zookeeperWatched)
		return err
	}
	if err := w.call(ctx, arm); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	done := make(chan struct{})
	go func() { // ends when the connection is closed; the closer waits for it
		defer close(done)
		for {
			event, ok := <-fired // each watch has a channel of its own
			if !ok || event.Err != nil {
				return
			}
			told()
			if arm() != nil {
				return
			}
			armed()
		}
	}()
	return func(context.Context) error {
		conn.Close()
		<-done
		return nil
	}, nil
}

func (z *zookeeper) Changer(ctx context.Context) (func(context.Context) error, closer, error) {
	conn, err := z.dial()
	if err != nil {
		return nil, nil, err
	}
	w := &zookeeperWorker{conn: conn, path: zookeeperWatched, value: bytes.Repeat([]byte{'x'}, contents)}
	return w.Write, w.Close, nil
}

func (z *zookeeper) OpenSession(ctx context.Context) (closer, error) {
	conn, err := z.dial()
	if err != nil {
		return nil, err
	}
	w := &zookeeperWorker{conn: conn}
	err = w.call(ctx, func() error { // the first operation waits for the session
		_, _, err := conn.Exists(zookeeperWatched)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w.Close, nil
}
