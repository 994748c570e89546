package chubbymigrate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	dt "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

const (
	killsLast = 8 * time.Second // of TestKills
	masterFor = time.Second     // how long each master serves before it is killed
)

// golang-migrate's suite, with SQLite, in a cell of processes whose master is killed again and again. And
// several migrate one database up and down meanwhile: never two at a time.
func TestKills(t *testing.T) {
	servers, stopKilling := startCell(t)
	end := time.Now().Add(killsLast)
	wrap := func(t *testing.T, inner database.Driver, name string) *Driver {
		d, err := New(t.Context(), inner, Config{Path: "/ls/local/" + name, Client: client.Config{Servers: servers}, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	open := func(t *testing.T, file string) database.Driver {
		inner, err := (&sqlite.Sqlite{}).Open("sqlite://" + file)
		if err != nil {
			t.Fatal(err)
		}
		return inner
	}
	t.Run("all", func(t *testing.T) {
		t.Run("suite", func(t *testing.T) {
			t.Parallel()
			dir, rounds := t.TempDir(), 0
			for ; time.Now().Before(end); rounds++ {
				d := wrap(t, open(t, filepath.Join(dir, fmt.Sprint(rounds))), "suite")
				dt.Test(t, d, []byte("CREATE TABLE t (Qty int, Name string);"))
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				d = wrap(t, open(t, filepath.Join(dir, fmt.Sprint("m", rounds))), "suite")
				m := migrator(t, d)
				dt.TestMigrate(t, m)
				if a, b := m.Close(); a != nil || b != nil {
					t.Error(a, b)
				}
			}
			t.Logf("%d rounds", rounds)
		})
		t.Run("crowd", func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "one")
			var users, runs atomic.Int64
			var all sync.WaitGroup
			for range 3 {
				counted := &countedDriver{Driver: open(t, file), t: t, users: &users, runs: &runs}
				m := migrator(t, wrap(t, counted, "crowd"))
				m.LockTimeout = time.Minute
				all.Go(func() {
					for time.Now().Before(end) {
						for _, err := range []error{m.Up(), m.Down()} {
							if err != nil && !errors.Is(err, migrate.ErrNoChange) {
								t.Error(err)
								return
							}
						}
					}
					if a, b := m.Close(); a != nil || b != nil {
						t.Error(a, b)
					}
				})
			}
			all.Wait()
			if t.Logf("%d migrations", runs.Load()); runs.Load() < 10 {
				t.Error("want ten at least")
			}
		})
	})
	n := stopKilling()
	if t.Logf("the master was killed %d times", n); n < 3 {
		t.Error("want three at least")
	}
}

// The suite without kills, and without the time that they take.
func TestSuite(t *testing.T) {
	inRealTime(t, func(cfg client.Config) {
		inner, err := (&sqlite.Sqlite{}).Open("sqlite://" + filepath.Join(t.TempDir(), "one"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(t.Context(), inner, Config{Path: path, Client: cfg})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		dt.Test(t, d, []byte("CREATE TABLE t (Qty int, Name string);"))
	})
}

// migrator has two migrations.
func migrator(t *testing.T, d database.Driver) *migrate.Migrate {
	t.Helper()
	source, err := iofs.New(fstest.MapFS{
		"1_one.up.sql":   {Data: []byte("CREATE TABLE one (a int);")},
		"1_one.down.sql": {Data: []byte("DROP TABLE one;")},
		"2_two.up.sql":   {Data: []byte("CREATE TABLE two (a int);")},
		"2_two.down.sql": {Data: []byte("DROP TABLE two;")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// countedDriver checks that no two run migrations at a time. Its own lock is none, as that of SQLite's
// driver is for other instances.
type countedDriver struct {
	database.Driver
	t     *testing.T
	users *atomic.Int64
	runs  *atomic.Int64
}

func (d *countedDriver) Run(migration io.Reader) error {
	if d.users.Add(1) > 1 {
		d.t.Error("two run migrations at the same time")
	}
	defer d.users.Add(-1)
	d.runs.Add(1)
	<-time.After(5 * time.Millisecond)
	return d.Driver.Run(migration)
}

// process is a child of the test.
type process struct {
	*exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when there is no more output
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
		p.stdin.Close()
		<-p.read
		_ = p.Wait() // it was signalled
		if t.Failed() {
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
			if rest, ok := strings.CutPrefix(string(line), begin); ok {
				id, _, _ := strings.Cut(rest, " ")
				masters <- id
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
