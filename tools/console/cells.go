package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// devCell is a cell of chubbyd dev.
type devCell struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	dir     string
	base    int
	servers []string
}

const replicas = 5

// startDev starts a cell of five replicas, which have no certificates.
func startDev(ctx context.Context, chubbyd, dir string, base int) (*devCell, error) {
	c := &devCell{dir: dir, base: base, cmd: exec.CommandContext(ctx, chubbyd, "dev", "--base-port", strconv.Itoa(base), "--data", dir)}
	for i := range replicas {
		c.servers = append(c.servers, net.JoinHostPort("127.0.0.1", strconv.Itoa(base+i)))
	}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(os.Interrupt) }
	c.cmd.WaitDelay = 20 * time.Second
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stderr = os.Stderr
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() { // ends with the process, for which stop waits
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready") {
				ready <- nil
			}
		}
		select {
		case ready <- errors.New("chubbyd dev ended"):
		default:
		}
	}()
	select {
	case err := <-ready:
		return c, err
	case <-time.After(60 * time.Second):
		return c, errors.New("chubbyd dev is not ready after a minute")
	}
}

func (c *devCell) stop() {
	_ = c.cmd.Process.Signal(os.Interrupt)
	_ = c.cmd.Wait()
}

// console is the address of a replica's console; i counts from 0.
func (c *devCell) console(i int) string {
	return fmt.Sprintf("http://127.0.0.1:%d/console/", c.base+20+i)
}

// process is the process of a replica; i counts from 0.
func (c *devCell) process(i int) (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "dev.json"))
	if err != nil {
		return 0, err
	}
	var file struct {
		Replicas []struct {
			PID int `json:"pid"`
		} `json:"replicas"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return 0, err
	}
	if i >= len(file.Replicas) {
		return 0, fmt.Errorf("dev.json names %d replicas", len(file.Replicas))
	}
	return file.Replicas[i].PID, nil
}

// master returns which replica is the master, and its process.
func (c *devCell) master(ctx context.Context) (index, pid int, err error) {
	cell, err := client.Dial(ctx, client.Config{Servers: c.servers})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = cell.Close() }()
	status, err := cell.Status(ctx)
	if err != nil {
		return 0, 0, err
	}
	number, err := strconv.Atoi(strings.TrimPrefix(status.Master, "r"))
	if err != nil {
		return 0, 0, fmt.Errorf("%q is no replica of dev", status.Master)
	}
	pid, err = c.process(number - 1)
	return number - 1, pid, err
}

// actors are clients whose sessions, locks and waits the pages show.
type actors struct {
	clients []*client.Client
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // of what they wait for
}

func newActors(ctx context.Context) *actors {
	a := &actors{}
	a.ctx, a.stop = context.WithCancel(ctx)
	return a
}

func (a *actors) close() {
	a.stop()
	for _, c := range a.clients {
		_ = c.Close(context.Background())
	}
}

func (a *actors) client(cell *devCell, as string) (*client.Client, error) {
	c, err := client.New(a.ctx, client.Config{Servers: cell.servers, As: as})
	if err == nil {
		a.clients = append(a.clients, c)
	}
	return c, err
}

// hold acquires a lock, for as long as the session lives.
func (a *actors) hold(c *client.Client, path, reason string, mode api.LockMode) error {
	h, err := c.Open(a.ctx, path, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: 10 * time.Second})
	if err != nil {
		return err
	}
	_, err = h.Acquire(a.ctx, mode, client.Reason(reason))
	return err
}

// wait stands in the queue of a lock.
func (a *actors) wait(c *client.Client, path, reason string) error {
	h, err := c.Open(a.ctx, path, client.OpenOptions{Read: true, Write: true})
	if err != nil {
		return err
	}
	queued := make(chan struct{}, 1)
	go func() { // ends with the actors
		_, _ = h.Acquire(a.ctx, api.Exclusive, client.Reason(reason), client.OnQueued(func(client.Queued) {
			select {
			case queued <- struct{}{}:
			default:
			}
		}))
	}()
	select {
	case <-queued:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("nobody waits for %s", path)
	}
}

// misuse has clients misuse the cell: one asks for a short lease, and another polls a file, as long as the actors act. A master judges that after
// misuse.MinTime.
func (a *actors) misuse(cell *devCell) error {
	brief, err := client.New(a.ctx, client.Config{Servers: cell.servers, As: "cron.example.org", Lease: 2 * time.Second})
	if err != nil {
		return err
	}
	a.clients = append(a.clients, brief)
	c, err := client.New(a.ctx, client.Config{Servers: cell.servers, As: "spiffe://example.org/batch/poller", NoCache: true})
	if err != nil {
		return err
	}
	a.clients = append(a.clients, c)
	h, err := c.Open(a.ctx, "/ls/local/config/frontend.yaml", client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	go func() { // ends with the actors
		for a.ctx.Err() == nil {
			_, _, _ = h.Contents(a.ctx) // while there is no master it fails
			select {
			case <-a.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return nil
}

// play has the actors do what fills every page.
func (a *actors) play(cell *devCell) error {
	names := []string{"spiffe://example.org/billing", "spiffe://example.org/billing-standby", "spiffe://example.org/search/indexer", "build.example.org", "deploy.example.org", "spiffe://example.org/reports"}
	var all []*client.Client
	for _, name := range names {
		c, err := a.client(cell, name)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	dirs := []string{"services", "services/billing", "services/search", "jobs", "config"}
	for _, dir := range dirs {
		if _, err := all[0].Open(a.ctx, "/ls/local/"+dir, client.OpenOptions{Read: true, Write: true, Create: client.Directory}); err != nil {
			return err
		}
	}
	files := map[string]string{
		"config/frontend.yaml": "replicas: 12\nimage: registry.example.org/frontend:2026-11-27\nlimits:\n  memory: 512Mi\n  cpu: \"2\"\nfeatures:\n  - new-checkout\n  - dark-mode\n",
		"config/keys.bin":      "\x00\x01\x02\x7f\xff\xfe<script>alert(1)</script>\x10\x20",
		"config/<b>&\"'.html":  "<script>alert('contents')</script>\n<img src=x onerror=alert(2)>\n",
	}
	for name, contents := range files {
		if _, err := all[0].Open(a.ctx, "/ls/local/"+name, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte(contents)}); err != nil {
			return err
		}
	}
	if err := a.misuse(cell); err != nil {
		return err
	}
	steps := []func() error{
		func() error {
			return a.hold(all[0], "/ls/local/services/billing/primary", "primary of billing in eu-west", api.Exclusive)
		},
		func() error { return a.wait(all[1], "/ls/local/services/billing/primary", "standby of billing") },
		func() error {
			return a.hold(all[2], "/ls/local/services/search/index", "rebuilding the index", api.Exclusive)
		},
		func() error {
			return a.hold(all[3], "/ls/local/jobs/nightly", "<b>nightly</b> build 4711", api.Exclusive)
		},
		func() error { return a.hold(all[4], "/ls/local/jobs/deploy", "deploys frontend", api.Exclusive) },
		func() error { return a.hold(all[5], "/ls/local/jobs/report", "", api.Shared) },
		func() error { return a.hold(all[4], "/ls/local/jobs/report", "reads while it deploys", api.Shared) },
		func() error { return a.wait(all[5], "/ls/local/services/search/index", "reads the index") },
		func() error { return a.wait(all[2], "/ls/local/jobs/nightly", "waits for the build") },
		func() error { return a.wait(all[4], "/ls/local/jobs/nightly", "deploys what was built") },
		func() error { return a.wait(all[3], "/ls/local/jobs/deploy", "wants to deploy, too") },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
