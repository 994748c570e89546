package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const benchCell = "bench"

// chubby is a cell of five replicas as `chubbyd dev` runs them.
type chubby struct {
	repo     string // the source to build from
	logStore string // empty for the default

	dev     *child
	servers []string // the replicas' client addresses
	caching bool     // whether the client library keeps a cache
	program string
}

func (c *chubby) Version() string {
	version := "Chubby " + commit(c.repo)
	if c.logStore != "" {
		version += " --log-store " + c.logStore
	}
	return version
}

func (c *chubby) Start(ctx context.Context, dir string) error {
	if err := c.build(ctx, dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not up within a minute"))
	defer cancel()
	port, err := freeBasePort()
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "cell")
	var env []string
	if c.logStore != "" {
		env = append(env, "CHUBBYD_LOG_STORE="+c.logStore)
	}
	c.dev, err = startChild(dir, "chubbyd", env, keepCommand, c.program, "dev", "--cell", benchCell,
		"--replicas", strconv.Itoa(members), "--data", data, "--base-port", strconv.Itoa(port), "--no-restart")
	if err != nil {
		return err
	}
	if _, err := c.dev.await(ctx, "ready: cell "); err != nil {
		return errors.Join(err, c.Stop())
	}
	if c.servers, err = devServers(filepath.Join(data, "dev.json")); err != nil {
		return errors.Join(err, c.Stop())
	}
	if err := c.prepare(ctx); err != nil {
		return errors.Join(err, c.Stop())
	}
	return nil
}

func (c *chubby) build(ctx context.Context, dir string) error {
	program, err := filepath.Abs(filepath.Join(dir, "chubbyd.exe")) // a name that every system can run
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/chubbyd")
	cmd.Dir = c.repo
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build chubbyd in %s: %w\n%s", c.repo, err, out)
	}
	c.program = program
	return nil
}

// devServers reads the client addresses from the dev.json of chubbyd dev.
func devServers(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cell struct {
		Replicas []struct{ Client string }
	}
	if err := json.Unmarshal(text, &cell); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var servers []string
	for _, r := range cell.Replicas {
		servers = append(servers, r.Client)
	}
	return servers, nil
}

// freeBasePort finds a port for `chubbyd dev --base-port`, which needs five
// ports from there, five from ten above, and five from twenty above.
func freeBasePort() (int, error) {
	for base := 17421; base < 32000; base += 100 { // below the ports that systems assign
		if free(base) {
			return base, nil
		}
	}
	return 0, errors.New("found no free ports for a cell between 17421 and 32000")
}

func free(base int) bool {
	for block := range 3 {
		for i := range members {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base+10*block+i)))
			if err != nil {
				return false
			}
			_ = l.Close() // the port is free
		}
	}
	return true
}

func (c *chubby) config() client.Config {
	return client.Config{Cell: benchCell, Servers: c.servers, As: "bench"}
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
	}{{"/" + api.Root + "/" + benchCell + "/bench", client.Directory}, {path("shared"), client.File}} {
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

func (c *chubby) Term(ctx context.Context) (term uint64, err error) {
	cell, err := client.Dial(ctx, c.config())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cell.Close()) }()
	status, err := cell.Status(ctx)
	if err != nil {
		return 0, err
	}
	return uint64(status.Epoch), nil
}

func (c *chubby) Stop() error {
	if c.dev == nil {
		return nil
	}
	err := c.dev.stop()
	c.dev = nil
	return err
}

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
	}{{fmt.Sprintf("lock-%d", i), &cw.own}, {"shared", &cw.shared}, {fmt.Sprintf("file-%d", i), &cw.file}} {
		if *open.to, err = cl.Open(ctx, path(open.name), options); err != nil {
			return nil, err
		}
	}
	if err = cw.Write(ctx); err != nil {
		return nil, err
	}
	if cw.direct, err = openDirect(ctx, c.servers, path(fmt.Sprintf("file-%d", i))); err != nil {
		return nil, err
	}
	if c.caching {
		return cachingWorker{cw}, nil
	}
	return cw, nil
}

type chubbyWorker struct {
	client            *client.Client
	own, shared, file *client.Handle
	direct            *directReader // it keeps no cache
	value             []byte
}

func (w *chubbyWorker) LockUnlock(ctx context.Context) error { return acquireRelease(ctx, w.own) }
func (w *chubbyWorker) Contend(ctx context.Context) error    { return acquireRelease(ctx, w.shared) }

func acquireRelease(ctx context.Context, h *client.Handle) error {
	l, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

func (w *chubbyWorker) Write(ctx context.Context) error {
	_, err := w.file.SetContents(ctx, w.value)
	return err
}

func (w *chubbyWorker) Read(ctx context.Context) error { return w.direct.read(ctx) }

func (w *chubbyWorker) Close(ctx context.Context) error {
	var err error
	if w.direct != nil {
		err = w.direct.close(ctx)
	}
	return errors.Join(err, w.client.Close(ctx))
}

// cachingWorker is a worker of a client library that keeps a cache.
type cachingWorker struct{ *chubbyWorker }

func (w cachingWorker) ReadCached(ctx context.Context) error {
	text, _, err := w.file.Contents(ctx)
	if err == nil && len(text) != contents {
		err = fmt.Errorf("read %d bytes of %s, not %d", len(text), w.file.Path(), contents)
	}
	return err
}
