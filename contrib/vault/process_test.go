package chubbyvault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/hashicorp/vault/sdk/physical"
)

// writerTask makes this program a writer that TestKills kills: it has the servers.
const writerTask = "CHUBBYVAULT_TEST_WRITER"

const (
	killsLast   = 8 * time.Second // of TestKills
	masterFor   = time.Second     // how long each master serves before it is killed
	writerLease = 2 * time.Second
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(writerTask); servers != "" {
		os.Exit(write(strings.Split(servers, ",")))
	}
	os.Exit(m.Run())
}

// write replaces an entry, again and again, until it is killed or its standard input ends. It says each
// value before it writes it, and when it was written.
func write(servers []string) int {
	// Without a cache: what others write would wait for that of a process that was killed, longer than a master lives here.
	b, err := New(context.Background(), Config{Path: root + "/killed", Client: client.Config{Servers: servers, Lease: writerLease, NoCache: true}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		one := byte('a' + rand.IntN(26))
		fmt.Printf("begin %c\n", one)
		if err := b.Put(context.Background(), &physical.Entry{Key: "entry", Value: large(one)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("done %c\n", one)
	}
}

// The SDK's suite, in a cell of processes whose master is killed again and again. And a process that
// writes is killed in the middle: the entry has a value that was begun or written last, whole, and what
// the process has left is removed.
func TestKills(t *testing.T) {
	servers, stopKilling := startCell(t)
	end := time.Now().Add(killsLast)
	backend := func(t *testing.T, dir string) *Backend {
		b, err := New(t.Context(), Config{Path: root + dir, Client: client.Config{Servers: servers}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close(context.Background()) })
		return b
	}
	t.Run("all", func(t *testing.T) {
		t.Run("suite", func(t *testing.T) {
			t.Parallel()
			b, rounds := backend(t, "/entries"), 0
			for ; time.Now().Before(end); rounds++ {
				physical.ExerciseBackend(t, b)
				physical.ExerciseBackend_ListPrefix(t, b)
				physical.ExerciseHABackend(t, backend(t, "/locks"), backend(t, "/locks"))
			}
			t.Logf("%d rounds", rounds)
		})
		t.Run("writers", func(t *testing.T) {
			t.Parallel()
			b, rounds := backend(t, "/killed"), 0
			for ; time.Now().Before(end); rounds++ {
				killWriter(t, b, servers)
			}
			t.Logf("%d rounds", rounds)
			if rounds < 3 {
				t.Error("want three at least")
			}
		})
	})
	if n := stopKilling(); n < 3 {
		t.Errorf("the master was killed %d times; want three at least", n)
	} else {
		t.Logf("the master was killed %d times", n)
	}
	b := backend(t, "/killed")
	entry, err := b.Get(t.Context(), "entry")
	if err != nil {
		t.Fatal(err)
	}
	want := 1
	if entry == nil { // on a slow machine all writers were killed before their first value was complete
		want = 0
	}
	for limit := time.Now().Add(20 * time.Second); ; <-time.After(100 * time.Millisecond) {
		if _, err := b.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := leftOf(t, b)
		if left == want {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d values in chunks are left; want %d", left, want)
		}
	}
}

func leftOf(t *testing.T, b *Backend) (n int) {
	t.Helper()
	if err := b.keeper.Do(t.Context(), func(c *client.Client) error {
		list, err := children(t.Context(), c, b.chunks())
		n = len(list)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// killWriter starts a process that writes, kills it a moment later, and checks the entry.
func killWriter(t *testing.T, b *Backend, servers []string) {
	t.Helper()
	before, err := b.Get(t.Context(), "entry")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var begun, done byte // the values that were begun and written last
	first := make(chan struct{})
	once := sync.OnceFunc(func() { close(first) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerTask+"="+strings.Join(servers, ","))
	p := start(t, cmd, func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		if value, ok := bytes.CutPrefix(line, []byte("begin ")); ok {
			begun = value[0]
			once()
		} else if value, ok := bytes.CutPrefix(line, []byte("done ")); ok {
			done = value[0]
		}
	})
	select {
	case <-first:
	case <-time.After(20 * time.Second):
		t.Fatal("the writer does not begin")
	}
	<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	if done == 0 && before != nil {
		done = before.Value[0]
	}
	is, err := b.Get(t.Context(), "entry")
	switch {
	case err != nil:
		t.Fatalf("after the death of a writer: %v", err)
	case is == nil && done == 0:
	case is == nil || !bytes.Equal(is.Value, large(is.Value[0])):
		t.Fatalf("after the death of a writer the entry is not whole: %t", is == nil)
	case is.Value[0] != begun && is.Value[0] != done:
		t.Errorf("the value is %c; %c was begun and %c was written", is.Value[0], begun, done)
	}
}

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

// startCell builds chubbyd, starts a cell of five replicas, and kills its master, each one a second
// after it was elected, until stop is called, which says how often that was.
func startCell(t *testing.T) (servers []string, stop func() int) {
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
