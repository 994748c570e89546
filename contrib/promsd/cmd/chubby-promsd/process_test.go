package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// programTask makes the test's binary the program, with these arguments: what is killed and stopped must
// be a process.
const programTask = "CHUBBY_PROMSD_TEST_CONFIG"

func TestMain(m *testing.M) {
	if config := os.Getenv(programTask); config != "" {
		os.Args = []string{"chubby-promsd", "-config", config}
		main()
	}
	os.Exit(m.Run())
}

// process is a child of the test.
type process struct {
	*exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when there is no more output
	once  sync.Once

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

func start(t *testing.T, cmd *exec.Cmd, line func(string)) *process {
	t.Helper()
	p := &process{Cmd: cmd, read: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	go func() {
		defer close(p.read)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.said, lines.Text())
			p.mu.Unlock()
			line(lines.Text())
		}
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if said := p.text(); t.Failed() || strings.Contains(said, "DATA RACE") {
			t.Errorf("%v wrote:\n%s", cmd.Args, said)
		}
	})
	return p
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// end sends it a signal, and waits for its end.
func (p *process) end(s syscall.Signal) {
	p.once.Do(func() {
		_ = p.Process.Signal(syscall.SIGCONT) // it may have ended
		_ = p.Process.Signal(s)
		p.stdin.Close()
		<-p.read
		_ = p.Wait() // it may have been killed
	})
}

// devCell is a cell of three processes.
type devCell struct {
	*process
	dir     string
	servers []string
}

func startCell(t *testing.T) *devCell {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "chubbyd")
	build := exec.Command("go", "build", "-o", bin, "./cmd/chubbyd")
	build.Dir = "../../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build chubbyd: %v\n%s", err, out)
	}
	base := freePorts(t)
	c := &devCell{dir: t.TempDir()}
	ready := make(chan struct{})
	c.process = start(t, exec.Command(bin, "dev", "--replicas", "3", "--base-port", fmt.Sprint(base), "--data", c.dir), func(line string) {
		if strings.HasPrefix(line, "ready: ") {
			close(ready)
		}
	})
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatal("the cell is not ready after 30 s")
	}
	for i := range 3 {
		c.servers = append(c.servers, fmt.Sprintf("127.0.0.1:%d", base+i))
	}
	return c
}

// signal sends a signal to the replicas of whom is true.
func (c *devCell) signal(t *testing.T, s syscall.Signal, whom func(id string) bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Replicas []struct {
			ID  string
			PID int
		}
	}
	if err := json.Unmarshal(text, &described); err != nil {
		t.Fatal(err)
	}
	for _, r := range described.Replicas {
		if whom(r.ID) {
			if err := syscall.Kill(r.PID, s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// killMaster kills the master. It returns when there is another.
func (c *devCell) killMaster(t *testing.T) {
	t.Helper()
	master := c.master(t, "")
	c.signal(t, syscall.SIGKILL, func(id string) bool { return id == master })
	c.master(t, master)
}

// master returns the id of the master, once that is another than not.
func (c *devCell) master(t *testing.T, not string) (id string) {
	t.Helper()
	cell, err := client.Dial(t.Context(), client.Config{Servers: c.servers})
	if err != nil {
		t.Fatal(err)
	}
	defer cell.Close()
	within(t, 20*time.Second, "a master", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, err := cell.Status(ctx)
		id = s.Master
		return err == nil && id != "" && id != not
	})
	return id
}

// within waits until something is so.
func within(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	defer func(began time.Time) { t.Logf("%s: %v", what, time.Since(began)) }(time.Now())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !so() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// freePorts returns a base port on which chubbyd dev has room.
func freePorts(t *testing.T) int {
	t.Helper()
	for base := 30000 + os.Getpid()%500*30; base < 60000; base += 30 {
		var open []net.Listener
		for i := range 30 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+i))
			if err != nil {
				break
			}
			open = append(open, l)
		}
		for _, l := range open {
			l.Close()
		}
		if len(open) == 30 {
			return base
		}
	}
	t.Fatal("no thirty free ports in a row")
	return 0
}
