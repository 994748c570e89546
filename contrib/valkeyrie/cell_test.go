package chubbykv_test

import (
	"bufio"
	"bytes"
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
)

// process is a child of the test.
type process struct {
	*exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when there is no more output
	ended bool
}

// end asks it to end, and waits until it has.
func (p *process) end() {
	if p.ended {
		return
	}
	p.ended = true
	p.stdin.Close()
	<-p.read
	_ = p.Wait() // it may have been killed
}

func start(t *testing.T, cmd *exec.Cmd, line func([]byte)) *process {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: cmd, stdin: stdin, read: make(chan struct{})}
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			line(lines.Bytes())
		}
	}()
	t.Cleanup(func() {
		p.end()
		if strings.Contains(stderr.String(), "DATA RACE") || t.Failed() {
			t.Errorf("%v wrote:\n%s", cmd.Args, &stderr)
		}
	})
	return p
}

// startCell builds chubbyd, starts a cell of five replicas, and kills its master, each one some time after it was
// elected, until stop is called, which says how often that was.
func startCell(t *testing.T, masterFor time.Duration) (servers []string, stop func() int) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "chubbyd")
	build := exec.Command("go", "build", "-o", bin, "./cmd/chubbyd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build chubbyd: %v\n%s", err, out)
	}
	base, data := freePorts(t), t.TempDir()
	masters := make(chan string, 1000) // of all elections
	cell := start(t, exec.Command(bin, "dev", "--base-port", fmt.Sprint(base), "--data", data), func(line []byte) {
		for _, begin := range []string{"ready: cell local, master ", "master is now "} {
			if rest, ok := bytes.CutPrefix(line, []byte(begin)); ok {
				id, _, _ := bytes.Cut(rest, []byte(" "))
				masters <- string(id)
			}
		}
	})
	var first string
	select {
	case first = <-masters:
	case <-time.After(30 * time.Second):
		t.Fatal("the cell is not ready after 30 s")
	}
	quit, killed := make(chan struct{}), make(chan int, 1)
	go func() {
		kills := 0
		defer func() { killed <- kills }()
		for id := first; ; kills++ {
			select {
			case <-time.After(masterFor):
			case <-quit:
				return
			}
			if pid := pidOf(data, id); pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
			select {
			case id = <-masters:
			case <-quit:
				return
			}
		}
	}()
	stop = sync.OnceValue(func() int {
		close(quit)
		return <-killed
	})
	t.Cleanup(func() {
		stop()
		_ = cell.Process.Signal(syscall.SIGTERM) // it may have ended
	})
	for i := range 5 {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", base+i))
	}
	return servers, stop
}

// pidOf returns the process of a replica; 0 if it is not known.
func pidOf(data, id string) int {
	raw, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		return 0
	}
	var cell struct {
		Replicas []struct {
			ID  string
			PID int
		}
	}
	if err := json.Unmarshal(raw, &cell); err != nil {
		return 0
	}
	for _, r := range cell.Replicas {
		if r.ID == id {
			return r.PID
		}
	}
	return 0
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
