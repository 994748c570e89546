package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcd is five members of the etcd that go.mod pins.
type etcd struct {
	all       bool // clients connect to every member
	children  []*child
	endpoints []string
	leader    string // the endpoint of the member that led when all were up
}

func (e *etcd) Version() string { return "etcd " + moduleVersion("go.etcd.io/etcd/server/v3") }

func (e *etcd) Start(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not up within a minute"))
	defer cancel()
	addresses, err := freeAddresses(2 * members)
	if err != nil {
		return err
	}
	clients, peers := addresses[:members], addresses[members:]
	cluster := make([]string, members)
	for i, peer := range peers {
		cluster[i] = fmt.Sprintf("e%d=http://%s", i+1, peer)
	}
	for i := range members {
		name := fmt.Sprintf("e%d", i+1)
		c, err := startChild(dir, name, nil, memberCommand, "-name", name, "-dir", filepath.Join(dir, name),
			"-client", "http://"+clients[i], "-peer", "http://"+peers[i], "-cluster", strings.Join(cluster, ","))
		if err != nil {
			return errors.Join(err, e.Stop())
		}
		e.children = append(e.children, c)
		e.endpoints = append(e.endpoints, clients[i])
	}
	for _, c := range e.children {
		if _, err := c.await(ctx, ready); err != nil {
			return errors.Join(err, e.Stop())
		}
	}
	if err := e.findLeader(ctx); err != nil {
		return errors.Join(err, e.Stop())
	}
	return nil
}

// findLeader finds out which member leads. A call to another member costs an extra step, and
// Chubby's clients call only the master.
func (e *etcd) findLeader(ctx context.Context) error {
	c, err := e.dial(e.endpoints...)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, endpoint := range e.endpoints {
		status, err := c.Status(ctx, endpoint)
		if err != nil {
			return fmt.Errorf("ask etcd at %s who leads: %w", endpoint, err)
		}
		if status.Leader == status.Header.MemberId {
			e.leader = endpoint
			return nil
		}
	}
	return errors.New("no etcd member says that it leads")
}

func (e *etcd) dial(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
}

func (e *etcd) Term(ctx context.Context) (uint64, error) {
	c, err := e.dial(e.leader)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	status, err := c.Status(ctx, e.leader)
	if err != nil {
		return 0, err
	}
	return status.RaftTerm, nil
}

func (e *etcd) Stop() error {
	var errs []error
	for _, c := range e.children {
		errs = append(errs, c.stop())
	}
	e.children, e.endpoints = nil, nil
	return errors.Join(errs...)
}

func (e *etcd) Connect(ctx context.Context, i int) (worker, error) {
	endpoints := []string{e.leader}
	if e.all {
		endpoints = e.endpoints
	}
	c, err := e.dial(endpoints...)
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
		own:    concurrency.NewMutex(session, fmt.Sprintf("/bench/lock/%d", i)),
		shared: concurrency.NewMutex(session, "/bench/lock/shared"),
		key:    fmt.Sprintf("/bench/file/%d", i),
		value:  string(bytes.Repeat([]byte{'x'}, contents)),
	}
	if err := w.Write(ctx); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

type etcdWorker struct {
	client      *clientv3.Client
	session     *concurrency.Session
	own, shared *concurrency.Mutex
	key, value  string
}

func (w *etcdWorker) LockUnlock(ctx context.Context) error { return lockUnlock(ctx, w.own) }
func (w *etcdWorker) Contend(ctx context.Context) error    { return lockUnlock(ctx, w.shared) }

func lockUnlock(ctx context.Context, m *concurrency.Mutex) error {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return m.Unlock(ctx)
}

func (w *etcdWorker) Write(ctx context.Context) error {
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

func (w *etcdWorker) Close(context.Context) error {
	return errors.Join(w.session.Close(), w.client.Close())
}

// freeAddresses returns addresses that are not in use now.
func freeAddresses(n int) ([]string, error) {
	var list []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list, nil
}
