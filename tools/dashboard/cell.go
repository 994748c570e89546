package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/client"
)

const replicas = 5

// Ports: of replica i, which counts from 0, clientPort+i and so on; of the Prometheus that records, and of the one that is asked.
const clientPort, raftPort, httpPort, programPort, recordPort, drawPort = 9601, 9611, 9621, 9631, 9641, 9642

// cell is a cell of processes, with certificates, as docs/deployment.md has it.
type cell struct {
	chubbyd, dir string
	members      string
	processes    [replicas]*exec.Cmd // nil: it does not run
}

func at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// newCell makes the certificates.
func newCell(ctx context.Context, chubbyd, dir string) (*cell, error) {
	c := &cell{chubbyd: chubbyd, dir: dir}
	if err := os.Mkdir(filepath.Join(dir, "backups"), 0o700); err != nil {
		return nil, err
	}
	commands := [][]string{{"init"}, {"client", "ops.example.org"}}
	for _, name := range programNames() {
		commands = append(commands, []string{"client", name})
	}
	var members []string
	for i := range replicas {
		id := fmt.Sprintf("r%d", i+1)
		commands = append(commands, []string{"server", id, "--cell", cellName, "--host", "127.0.0.1"})
		members = append(members, fmt.Sprintf("%s=%s,%s,%s", id, at(clientPort+i), at(raftPort+i), at(httpPort+i)))
	}
	c.members = strings.Join(members, ";")
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, chubbyd, append([]string{"certs"}, args...)...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("chubbyd certs %s: %w: %s", strings.Join(args, " "), err, text)
		}
	}
	return c, nil
}

func (c *cell) startAll(ctx context.Context) error {
	for i := range replicas {
		if err := c.start(ctx, i); err != nil {
			return err
		}
	}
	_, err := c.master(ctx)
	return err
}

// start starts a replica. It does not wait until it is ready: one alone never is.
func (c *cell) start(ctx context.Context, i int) error {
	id := fmt.Sprintf("r%d", i+1)
	cmd := exec.CommandContext(ctx, c.chubbyd, "serve", "--bootstrap", "--cell", cellName, "--id", id, "--members", c.members,
		"--data", filepath.Join(c.dir, id), "--operators", "ops.example.org", "--log-level", "error",
		"--tls-cert", "certs/server-"+id+".crt", "--tls-key", "certs/server-"+id+".key", "--tls-ca", "certs/ca.crt",
		"--peer-tls-cert", "certs/replica-"+id+".crt", "--peer-tls-key", "certs/replica-"+id+".key", "--peer-tls-ca", "certs/replica-ca.crt",
		"--metric-prefixes", "/ls/main/jobs", "--backup-to", filepath.Join(c.dir, "backups"), "--backup-every", "1m")
	cmd.Dir, cmd.Stderr = c.dir, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	c.processes[i] = cmd
	return nil
}

// kill kills a replica, and waits for its end.
func (c *cell) kill(i int) {
	_ = c.processes[i].Process.Kill()
	_ = c.processes[i].Wait()
	c.processes[i] = nil
}

// drill leaves the cell without a master for so long, and for an election.
func (c *cell) drill(ctx context.Context, length time.Duration) (err error) {
	operator, err := client.New(ctx, c.config("ops.example.org"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, operator.Close(ctx)) }()
	_, err = client.TransferWith(ctx, operator, client.TransferOptions{Silent: true, Vacant: length, Why: "for the pictures"})
	return err
}

// stop stops what runs.
func (c *cell) stop() {
	for _, cmd := range c.processes {
		if cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, cmd := range c.processes {
		if cmd != nil {
			_ = cmd.Wait()
		}
	}
}

// config is that of a client.
func (c *cell) config(principal string) client.Config {
	certs := filepath.Join(c.dir, "certs")
	config := client.Config{Cell: cellName, TLS: client.TLSFiles{
		CA: filepath.Join(certs, "ca.crt"), Cert: filepath.Join(certs, "client-"+principal+".crt"), Key: filepath.Join(certs, "client-"+principal+".key"),
	}}
	for i := range replicas {
		config.Servers = append(config.Servers, at(clientPort+i))
	}
	return config
}

// master returns which replica is ready as the master, and waits until one is. The health endpoints say it: a client
// would be in the metrics.
func (c *cell) master(ctx context.Context) (index int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		for i, cmd := range c.processes {
			if cmd != nil && isMaster(ctx, i) {
				return i, nil
			}
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return 0, fmt.Errorf("no master: %w", err)
		}
	}
}

// isMaster asks a replica's metrics.
func isMaster(ctx context.Context, i int) bool {
	text, err := get(ctx, "http://"+at(httpPort+i)+"/metrics")
	return err == nil && strings.Contains(text, "\nchubby_master 1\n")
}

func get(ctx context.Context, address string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	reply, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err = readAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", address, reply.Status)
	}
	return text, err
}
