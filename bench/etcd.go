package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	at        place
	members   *group
	ports     *ports.Range
	relays    *relays
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
	var names []string
	if e.relays, names, err = e.at.relay(peers); err != nil {
		return errors.Join(err, e.Stop())
	}
	cluster := make([]string, members)
	for i, name := range names {
		cluster[i] = fmt.Sprintf("e%d=http://%s", i+1, name)
	}
	self, err := os.Executable()
	if err != nil {
		return errors.Join(err, e.Stop())
	}
	var commands [][]string
	for i := range members {
		name := fmt.Sprintf("e%d", i+1)
		commands = append(commands, []string{
			self, memberCommand, "-name", name, "-dir", filepath.Join(dir, name), "-client", "http://" + clients[i],
			"-peer", "http://" + peers[i], "-known", "http://" + names[i], "-cluster", strings.Join(cluster, ","),
		})
	}
	if e.members, err = startGroup(ctx, dir, "etcd", e.at.Sync, commands); err != nil {
		return errors.Join(err, e.Stop())
	}
	e.endpoints = clients
	for range commands {
		if _, err := e.members.await(ctx, ready); err != nil {
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

func (e *etcd) Processes() []int { return []int{e.members.pid()} }

func (e *etcd) Stop() error {
	err := errors.Join(e.members.stop(), e.relays.close(), e.ports.Close())
	e.members, e.relays, e.endpoints, e.ports = nil, nil, nil, nil
	return err
}

func (e *etcd) KillLeader(ctx context.Context) error {
	if err := e.findLeader(ctx); err != nil {
		return err
	}
	return e.members.kill(slices.Index(e.endpoints, e.leader))
}
