package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcd is five members of the etcd that go.mod pins.
type etcd struct {
	all       bool          // clients connect to every member
	attempt   time.Duration // bounds a client's write; 0 is no bound
	children  []*child
	endpoints []string
	leader    string // the endpoint of the member that leads
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
	var errs []error
	for _, endpoint := range e.endpoints {
		status, err := askStatus(ctx, c, endpoint)
		if err != nil {
			errs = append(errs, fmt.Errorf("ask etcd at %s who leads: %w", endpoint, err)) // it may have been killed
			continue
		}
		if status.Leader == status.Header.MemberId {
			e.leader = endpoint
			return nil
		}
	}
	return fmt.Errorf("no etcd member says that it leads: %w", errors.Join(errs...))
}

func askStatus(ctx context.Context, c *clientv3.Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return c.Status(ctx, endpoint)
}

func (e *etcd) dial(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// clientEndpoints are those that clients are given.
func (e *etcd) clientEndpoints() []string {
	if e.all {
		return e.endpoints
	}
	return []string{e.leader}
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

func (e *etcd) Processes() []int { return pids(e.children) }

func (e *etcd) Stop() error {
	err := stopAll(e.children)
	e.children, e.endpoints = nil, nil
	return err
}

func (e *etcd) KillLeader(ctx context.Context) error {
	if err := e.findLeader(ctx); err != nil {
		return err
	}
	return e.children[slices.Index(e.endpoints, e.leader)].cmd.Process.Kill()
}

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
