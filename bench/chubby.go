package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/ports"
)

const benchCell = "bench"

// chubby is a cell of five replicas as `chubbyd dev` runs them.
type chubby struct {
	repo     string // the source to build from
	logStore string // empty for the default
	members  int    // how many replicas; 0 is as many as every system has
	tls      bool   // with certificates
	traced   bool   // with a collector of spans
	switched bool   // built so that what it measures can be switched off, and is: see measure

	at        place // dev knows nothing of it: see placed
	relays    *relays
	collector *child
	ports     *ports.Range

	dev     *child
	file    string   // dev.json, which names the processes
	servers []string // the replicas' client addresses
	caching bool     // whether the client library keeps a cache
	program string
}

func (c *chubby) Version() string {
	version := "Chubby " + commit(c.repo)
	if c.logStore != "" {
		version += " --log-store " + c.logStore
	}
	if c.tls {
		version += " --tls"
	}
	if c.traced {
		version += " with trace-endpoint"
	}
	if c.switched {
		version += ", where measuring can be switched off"
	}
	return version
}

func (c *chubby) Start(ctx context.Context, dir string) error {
	if err := c.build(ctx, dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not up within a minute"))
	defer cancel()
	var err error
	if c.ports, err = ports.Reserve(); err != nil {
		return err
	}
	data := filepath.Join(dir, "cell")
	var env []string
	if c.logStore != "" {
		env = append(env, "CHUBBYD_LOG_STORE="+c.logStore)
	}
	if c.switched {
		env = append(env, switchVariable+"="+dir)
	}
	if c.traced {
		if c.collector, err = startChild(dir, "collector", nil, collectorCommand); err != nil {
			return err
		}
		line, err := c.collector.await(ctx, collectorReady)
		if err != nil {
			return errors.Join(err, c.Stop())
		}
		env = append(env, "CHUBBYD_TRACE_ENDPOINT=http://"+strings.TrimPrefix(line, collectorReady))
	}
	placed, err := c.placed()
	if err != nil {
		return errors.Join(err, c.Stop())
	}
	env = append(env, placed...)
	c.dev, err = startSlowed(dir, "chubbyd", env, c.at.Sync, keepCommand, c.program, "dev", "--cell", benchCell,
		"--replicas", strconv.Itoa(cmp.Or(c.members, members)), "--data", data, "--base-port", strconv.Itoa(c.ports.Base()), "--no-restart", "--tls="+strconv.FormatBool(c.tls))
	if err != nil {
		return errors.Join(err, c.Stop())
	}
	if _, err := c.dev.await(ctx, "ready: cell "); err != nil {
		return errors.Join(err, c.Stop())
	}
	c.file = filepath.Join(data, "dev.json")
	replicas, err := devReplicas(c.file)
	if err != nil {
		return errors.Join(err, c.Stop())
	}
	c.servers = nil
	for _, r := range replicas {
		c.servers = append(c.servers, r.Client)
	}
	if c.switched {
		if err := c.measure(ctx, false); err != nil {
			return errors.Join(err, c.Stop())
		}
	}
	if err := c.prepare(ctx); err != nil {
		return errors.Join(err, c.Stop())
	}
	return nil
}

// placed starts relays before the raft ports of the replicas, and returns the variables that have replicas reach one another
// through them: members whose raft addresses are the relays', which listen at another host. The ports are those of dev.
func (c *chubby) placed() (env []string, err error) {
	const apart = api.DefaultRaftPort - api.DefaultClientPort
	var rafts, list []string
	for i := range cmp.Or(c.members, members) {
		rafts = append(rafts, c.ports.Address(apart+i))
	}
	var known []string
	if c.relays, known, err = c.at.relay(rafts); c.relays == nil {
		return nil, err
	}
	for i := range known {
		list = append(list, fmt.Sprintf("r%d=%s,%s,%s", i+1, c.ports.Address(i), known[i], c.ports.Address(2*apart+i)))
	}
	return []string{"CHUBBYD_MEMBERS=" + strings.Join(list, ";"), "CHUBBYD_LISTEN=" + thisHost}, nil
}

func (c *chubby) build(ctx context.Context, dir string) error {
	program, err := filepath.Abs(filepath.Join(dir, "chubbyd.exe")) // a name that every system can run
	if err != nil {
		return err
	}
	args := []string{"build", "-o", program}
	if c.switched {
		overlay, err := overlaySwitch(c.repo, dir)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/chubbyd")...)
	cmd.Dir = c.repo
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build chubbyd in %s: %w\n%s", c.repo, err, out)
	}
	c.program = program
	return nil
}

// devReplica is a replica as dev.json names it.
type devReplica struct {
	ID, Client string
	PID        int
}

func devReplicas(file string) ([]devReplica, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cell struct{ Replicas []devReplica }
	if err := json.Unmarshal(text, &cell); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return cell.Replicas, nil
}

func (c *chubby) config() client.Config {
	cfg := client.Config{Cell: benchCell, Servers: c.servers}
	if !c.tls {
		cfg.As = "bench"
		return cfg
	}
	in := func(name string) string { return filepath.Join(filepath.Dir(c.file), "tls", name) }
	cfg.TLS = client.TLSFiles{CA: in("ca.crt"), Cert: in("client-dev.crt"), Key: in("client-dev.key")}
	return cfg
}

// path returns the name of a file in the bench's directory.
func path(name string) string { return "/" + api.Root + "/" + benchCell + "/bench/" + name }

// prepare makes the directory and the shared lock, and finds out whether
// clients cache.
func (c *chubby) prepare(ctx context.Context) (err error) {
	cl, err := client.New(ctx, c.config())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close(ctx)) }()
	for _, node := range []struct {
		path string
		kind client.Creation
	}{{"/" + api.Root + "/" + benchCell + "/bench", client.Directory}, {path("shared"), client.File}, {path("watched"), client.File}} {
		h, err := cl.Open(ctx, node.path, client.OpenOptions{Write: true, Create: node.kind})
		if err != nil {
			return err
		}
		if err := h.Close(ctx); err != nil {
			return err
		}
	}
	sessions, err := cl.Cell().Sessions(ctx)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if s.Session == cl.Session() {
			c.caching = s.MayCache
		}
	}
	return nil
}

func (c *chubby) Term(ctx context.Context) (uint64, error) {
	status, err := c.status(ctx)
	return uint64(status.Epoch), err
}

func (c *chubby) status(ctx context.Context) (status client.Status, err error) {
	cell, err := client.Dial(ctx, c.config())
	if err != nil {
		return status, err
	}
	defer func() { err = errors.Join(err, cell.Close()) }()
	return cell.Status(ctx)
}

func (c *chubby) Processes() []int { return []int{c.dev.pid()} }

// KillLeader kills the master. chubbyd dev leaves it dead (--no-restart).
func (c *chubby) KillLeader(ctx context.Context) error {
	status, err := c.status(ctx)
	if err != nil {
		return err
	}
	replicas, err := devReplicas(c.file)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(replicas, func(r devReplica) bool { return r.ID == status.Master })
	if i < 0 {
		return fmt.Errorf("no replica is the master, %q", status.Master)
	}
	return syscall.Kill(replicas[i].PID, syscall.SIGKILL)
}

func (c *chubby) Stop() error {
	var errs []error
	if c.dev != nil {
		errs = append(errs, c.dev.stop())
		c.dev = nil
	}
	if c.collector != nil {
		if c.servers != nil { // it was up, and the replicas have sent what was left
			ctx, cancel := context.WithTimeout(context.Background(), stopTime)
			defer cancel()
			_, err := c.collector.await(ctx, spansCame)
			errs = append(errs, err)
		}
		errs = append(errs, c.collector.stop())
		c.collector = nil
	}
	errs = append(errs, c.relays.close(), c.ports.Close())
	c.relays, c.ports = nil, nil
	return errors.Join(errs...)
}
