package chubbycron_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
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

// processes is a cell of three processes, whose master can be killed.
type processes struct {
	*testing.T
	servers []string

	mu      sync.Mutex // guards what follows
	pids    map[string]int
	master  string
	elected chan struct{} // closed at the next election
}

// startProcesses builds chubbyd and starts a cell, which starts a replica that was killed again after two seconds.
func startProcesses(t *testing.T) *processes {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "chubbyd")
	build := exec.Command("go", "build", "-o", bin, "./cmd/chubbyd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build chubbyd: %v\n%s", err, out)
	}
	base := freePorts(t)
	p := &processes{T: t, pids: map[string]int{}, elected: make(chan struct{})}
	for i := range 3 {
		p.servers = append(p.servers, fmt.Sprintf("127.0.0.1:%d", base+i))
	}
	cmd := exec.Command(bin, "dev", "--replicas", "3", "--base-port", fmt.Sprint(base), "--data", filepath.Join(dir, "data"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	first := p.elected
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.note(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-read
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("chubbyd dev: %v\n%s", err, &stderr)
		}
	})
	select {
	case <-first:
	case <-time.After(30 * time.Second):
		t.Fatal("the cell is not ready after 30 s")
	}
	return p
}

// note reads a line of chubbyd dev.
func (p *processes) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var id string
	var pid int
	if n, _ := fmt.Sscanf(line, "%s pid %d", &id, &pid); n == 2 {
		p.pids[id] = pid
	}
	_, rest, ready := strings.Cut(line, "ready: cell local, master ")
	_, other, changed := strings.Cut(line, "master is now ")
	if ready || changed {
		p.master = strings.Fields(rest + other)[0]
		close(p.elected)
		p.elected = make(chan struct{})
	}
}

// killMasters kills the master again and again, a second after its election, until ctx ends. It returns how often.
func (p *processes) killMasters(ctx context.Context) (kills int) {
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(time.Second):
		}
		p.mu.Lock()
		pid, next := p.pids[p.master], p.elected
		p.mu.Unlock()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			p.Errorf("kill %d: %v", pid, err)
			return kills
		}
		kills++
		select {
		case <-next:
		case <-time.After(20 * time.Second):
			p.Error("no master is elected after 20 s")
			return kills
		}
	}
}

// keeper returns a Keeper of a session of its own.
func (p *processes) keeper(ctx context.Context, cfg client.Config) *client.Keeper {
	p.Helper()
	cfg.Servers = p.servers
	k, err := client.Keep(ctx, cfg)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = k.Close(ctx) // its session ends with its lease otherwise
	})
	return k
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
