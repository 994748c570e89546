package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/internal/ports"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcd is five members of the etcd that go.mod pins.
type etcd struct {
	all       bool          // clients connect to every member
	attempt   time.Duration // bounds a client's write; 0 is no bound
	children  []*child
	ports     *ports.Range
	endpoints []string
	leader    string // the endpoint of the member that leads
}

func (e *etcd) Version() string { return "etcd " + moduleVersion("go.etcd.io/etcd/server/v3") }

func (e *etcd) Start(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not up within a minute"))
	defer cancel()
	var err error
	if e.ports, err = ports.Reserve(); err != nil {
		return err
	}
	addresses := e.ports.Addresses(2 * members)
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

// HandOver makes the next member in the list the leader.
func (e *etcd) HandOver(ctx context.Context) error {
	if err := e.findLeader(ctx); err != nil {
		return err
	}
	c, err := e.dial(e.leader) // only the leader can move itself
	if err != nil {
		return err
	}
	defer c.Close()
	next := e.endpoints[(slices.Index(e.endpoints, e.leader)+1)%members]
	status, err := askStatus(ctx, c, next)
	if err != nil {
		return err
	}
	if _, err := c.MoveLeader(ctx, status.Header.MemberId); err != nil {
		return err
	}
	e.leader = next
	return nil
}

func (e *etcd) Processes() []int { return pids(e.children) }

func (e *etcd) Stop() error {
	err := errors.Join(stopAll(e.children), e.ports.Close())
	e.children, e.endpoints, e.ports = nil, nil, nil
	return err
}

func (e *etcd) KillLeader(ctx context.Context) error {
	if err := e.findLeader(ctx); err != nil {
		return err
	}
	return e.children[slices.Index(e.endpoints, e.leader)].cmd.Process.Kill()
}
