package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const (
	readyLimit  = time.Minute            // until a cell that was started has a master, on a busy machine
	masterLimit = time.Minute            // until a cell has a master again; a disk may take seconds for each vote
	askLimit    = time.Second            // for one question who the master is
	askPause    = 20 * time.Millisecond  // between two
	portsOfCell = 30                     // from the base port of chubbyd dev on
	killPause   = 100 * time.Millisecond // before another attempt to kill a replica whose process has just ended
)

// Cell is a cell of chubbyd processes, called api.LocalCell. Its methods are safe
// for concurrent use. It stops when the test ends; close clients before that.
type Cell struct {
	t       testing.TB
	dev     *Process // chubbyd dev, which starts the replicas
	dir     string   // with dev.json
	servers []string
	asker   *client.Cell
}

// Start builds chubbyd, starts a cell of that many replicas, r1 and so on, with
// data in a temporary directory, and returns when it has a master.
func Start(t testing.TB, replicas int) *Cell {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "chubbyd")
	if err := build(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	c := &Cell{t: t, dir: filepath.Join(dir, "cell")}
	c.run(program, replicas)
	return c
}

// run starts the replicas, and returns when they have a master.
func (c *Cell) run(program string, replicas int) {
	c.t.Helper()
	base := FreePorts(c.t, portsOfCell)
	ready := make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	c.dev = Run(c.t, exec.Command(program, "dev", "--replicas", fmt.Sprint(replicas), "--base-port", fmt.Sprint(base), "--data", c.dir), func(line string) bool {
		if strings.HasPrefix(line, "ready: ") {
			once()
		}
		return false
	})
	select {
	case <-ready:
	case <-c.dev.Done():
		c.t.Fatalf("chubbyd dev has ended:\n%s", c.dev.Output())
	case <-time.After(readyLimit):
		c.t.Fatalf("the cell is not ready after %v:\n%s", readyLimit, c.dev.Output())
	}
	for i := range replicas {
		c.servers = append(c.servers, fmt.Sprintf("127.0.0.1:%d", base+i))
	}
	asker, err := client.Dial(c.t.Context(), client.Config{Servers: c.servers})
	if err != nil {
		c.t.Fatal(err)
	}
	c.asker = asker
	c.t.Cleanup(func() { _ = asker.Close() })
}

// build builds chubbyd.
func build(ctx context.Context, program string) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/chubbylock/chubby")
	module, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the source of chubbyd: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/chubbyd")
	cmd.Dir = strings.TrimSpace(string(module))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build chubbyd in %s: %w\n%s", cmd.Dir, err, out)
	}
	return nil
}

// Servers returns the client addresses of all replicas, for client.Config.
func (c *Cell) Servers() []string { return slices.Clone(c.servers) }

// Signal sends a signal to the replicas with these ids, or to all replicas if no id is
// given. It fails the test if one of them is not running. After SIGSTOP it returns when
// they are stopped, see Halt.
func (c *Cell) Signal(s os.Signal, ids ...string) {
	c.t.Helper()
	pids, err := c.pids()
	if err != nil {
		c.t.Fatal(err)
	}
	for id, pid := range pids {
		if len(ids) > 0 && !slices.Contains(ids, id) {
			continue
		}
		if err := signal(pid, s); err != nil {
			c.t.Fatalf("%v to replica %s: %v", s, id, err)
		}
	}
}

// pids returns the process of each replica that was started last.
func (c *Cell) pids() (map[string]int, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "dev.json"))
	if err != nil {
		return nil, fmt.Errorf("look for the replicas' processes: %w", err)
	}
	var described struct {
		Replicas []struct {
			ID  string
			PID int
		}
	}
	if err := json.Unmarshal(text, &described); err != nil {
		return nil, fmt.Errorf("look for the replicas' processes: %w", err)
	}
	pids := map[string]int{}
	for _, r := range described.Replicas {
		pids[r.ID] = r.PID
	}
	return pids, nil
}

func signal(pid int, s os.Signal) error {
	if pid <= 0 {
		return errors.New("it was never started")
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return sendTo(p, s)
}

// Master returns the id of the master. It waits until there is one.
func (c *Cell) Master() string {
	c.t.Helper()
	id, _, err := c.awaitMaster(c.t.Context(), 0)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// awaitMaster waits for a master of an epoch after that one.
func (c *Cell) awaitMaster(ctx context.Context, after api.Epoch) (id string, epoch api.Epoch, err error) {
	within, cancel := context.WithTimeout(ctx, masterLimit)
	defer cancel()
	for {
		if s, err := c.ask(within); err == nil && s.Master != "" && s.Epoch > after {
			return s.Master, s.Epoch, nil
		}
		select {
		case <-within.Done():
			return "", 0, fmt.Errorf("no master after epoch %d: %w", after, within.Err())
		case <-time.After(askPause):
		}
	}
}

func (c *Cell) ask(ctx context.Context) (client.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return c.asker.Status(ctx)
}

// KillMaster kills the master by SIGKILL, and returns when another epoch has begun
// with one: usually that of another replica.
func (c *Cell) KillMaster() {
	c.t.Helper()
	if err := c.killMaster(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cell) killMaster(ctx context.Context) error {
	for {
		id, epoch, err := c.awaitMaster(ctx, 0)
		if err != nil {
			return err
		}
		pids, err := c.pids()
		if err == nil {
			err = signal(pids[id], syscall.SIGKILL)
		}
		if err == nil {
			_, _, err = c.awaitMaster(ctx, epoch)
			return err
		}
		if !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill the master %s: %w", id, err)
		}
		select { // it has ended by itself, and dev.json tells of its next process soon
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(killPause):
		}
	}
}

// KillMasters kills the master again and again, each when it has served for that
// long, until ctx ends. It returns how many were killed whose successor has served.
// If there is no master for a minute, it fails the test and returns. It may run
// in a goroutine that the test waits for.
func (c *Cell) KillMasters(ctx context.Context, serve time.Duration) (kills int) {
	c.t.Helper()
	return c.killWhile(ctx, serve, func(int) bool { return true })
}

// KillMastersFor is KillMasters for that long, and on a machine that is too slow for that for longer: until
// it has killed that many. It returns earlier only if ctx ends, or if it fails the test.
func (c *Cell) KillMastersFor(ctx context.Context, serve, span time.Duration, least int) (kills int) {
	c.t.Helper()
	end := time.Now().Add(span)
	return c.killWhile(ctx, serve, func(kills int) bool { return kills < least || time.Now().Before(end) })
}

// killWhile kills masters until ctx ends, or as long as more says of their number.
func (c *Cell) killWhile(ctx context.Context, serve time.Duration, more func(kills int) bool) (kills int) {
	c.t.Helper()
	for more(kills) {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(serve):
		}
		switch err := c.killMaster(ctx); {
		case ctx.Err() != nil:
			return kills
		case err != nil:
			c.t.Errorf("after %d masters were killed: %v", kills, err)
			return kills
		}
		kills++
	}
	return kills
}
