package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// TestMain builds the binaries once and runs the tests with them; or, as a child of the tests, it does a task.
func TestMain(m *testing.M) {
	flag.Parse()
	if *childTask == "" {
		if signal.Ignored(syscall.SIGHUP) { // under nohup; with a handler it is as usual for what the tests start, too
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		}
		os.Exit(build(m))
	}
	var k task
	if err := json.Unmarshal([]byte(*childTask), &k); err != nil {
		fmt.Fprintf(os.Stderr, "-child: %v\n", err)
		os.Exit(2)
	}
	os.Exit(k.run())
}

// binaries is the directory into which TestMain has built chubbyd, chubbyctl, chubbyctl-recipes and the election of
// the README.
var binaries string

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chubby-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	for _, args := range [][]string{
		{"-o", dir, "../cmd/chubbyd", "../cmd/chubbyctl", "../examples/election"},
		{"-C", "../contrib/recipes", "-o", dir, "./cmd/chubbyctl-recipes"},
	} {
		if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the binaries: %v\n%s", err, out)
			return 1
		}
	}
	if err := setParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintf(os.Stderr, "the shared cell: %v\n", err)
		return max(code, 1)
	}
	return code
}

// bin returns the path of one of the project's binaries.
func bin(name string) string { return filepath.Join(binaries, name) }

// world is a running cell and its users.
type world struct {
	t    *testing.T
	dir  string   // the cell's data
	base int      // the first client port
	root string   // the directory of the test's nodes
	env  []string // for chubbyd, besides the usual
	dev  *process

	moved atomic.Pointer[string] // the servers, since they were replaced
}

// newWorld returns a cell that is still to be started.
func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, dir: filepath.Join(t.TempDir(), "cell"), base: freePorts(t), root: "/ls/local"}
}

// start starts a cell of five with these flags for chubbyd dev, and waits until it is ready.
func start(t *testing.T, flags ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.run(flags...)
	return w
}

// path returns the path of a node of the test.
func (w *world) path(name string) string { return w.root + "/" + name }

// run starts chubbyd dev on the world's directory.
func (w *world) run(flags ...string) {
	w.t.Helper()
	w.dev = launch(w.t, w.devCommand(flags...), (*exec.Cmd).Start)
	w.dev.waitFor("ready: cell local", readyLimit)
}

func (w *world) devCommand(flags ...string) *exec.Cmd {
	cmd := command(bin("chubbyd"), append([]string{"dev", "--data", w.dir, "--base-port", fmt.Sprint(w.base)}, flags...)...)
	cmd.Env = append(cmd.Env, w.env...)
	return cmd
}

// servers is the cell's replicas for --servers.
func (w *world) servers() string {
	if now := w.moved.Load(); now != nil {
		return *now
	}
	var list []string
	for i := range 5 {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", w.base+i))
	}
	return strings.Join(list, ",")
}

// client opens a session of this process.
func (w *world) client(cfg client.Config) *client.Client {
	w.t.Helper()
	return w.clientFor(w.t, cfg)
}

// clientFor opens a session that ends with a part of the test.
func (w *world) clientFor(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	cfg.Servers = strings.Split(w.servers(), ",")
	ctx, cancel := context.WithTimeout(context.Background(), patience(20*time.Second))
	defer cancel()
	c, err := client.New(ctx, cfg)
	noErr(t, err, "open a session")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the cell may be gone by now
	})
	return c
}

// process is a child of the test, stopped at its end if it still runs.
type process struct {
	t      *testing.T // nil for the shared cell
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
	stdout buffer
	stderr buffer
}

// buffer collects output that may be looked at while it grows.
type buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// command returns a command that is not to be influenced by the user's settings.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CHUBBY_CELLS=", "CHUBBY_CONFIG=/dev/null", "CHUBBYD_DISK_STALL=1m") // all replicas are on one disk
	return cmd
}

// spawn starts a program.
func spawn(t *testing.T, stdin io.Reader, name string, args ...string) *process {
	t.Helper()
	cmd := command(name, args...)
	cmd.Stdin = stdin
	return launch(t, cmd, (*exec.Cmd).Start)
}

// launch starts a command by a function of the caller.
func launch(t *testing.T, cmd *exec.Cmd, start func(*exec.Cmd) error) *process {
	t.Helper()
	p := must(beginBy(cmd, start))(t)
	p.t = t
	t.Cleanup(func() {
		report(t, p.end())
	})
	return p
}

// begin starts a command that belongs to no test.
func begin(cmd *exec.Cmd) (*process, error) { return beginBy(cmd, (*exec.Cmd).Start) }

func beginBy(cmd *exec.Cmd, start func(*exec.Cmd) error) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = 2 * time.Second
	if err := start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		_ = p.cmd.Wait() // its exit code is looked at where it matters
		close(p.done)
	}()
	return p, nil
}

// end ends the process, by SIGTERM and then by SIGKILL.
func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return nil
	case <-time.After(patience(20 * time.Second)):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop within %v of SIGTERM", p.cmd, patience(20*time.Second))
	}
}

// wait returns the exit code, 128 and the signal's number if a signal ended it. It waits with patience.
func (p *process) wait(limit time.Duration) int {
	p.t.Helper()
	return p.endsWithin(patience(limit))
}

// endsWithin is wait with a limit that is part of what is tested.
func (p *process) endsWithin(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s did not end within %v\nstdout: %s\nstderr: %s", p.cmd, limit, &p.stdout, &p.stderr)
	}
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// waitFor waits until the process has printed text.
func (p *process) waitFor(text string, limit time.Duration) {
	p.t.Helper()
	noErr(p.t, p.awaitText(text, limit))
}

// awaitText is waitFor without a test. It waits with patience.
func (p *process) awaitText(text string, limit time.Duration) error {
	return p.prints(fmt.Sprintf("%q", text), limit, func() bool { return strings.Contains(p.stdout.String()+p.stderr.String(), text) })
}

// prints waits, with patience, until the process has printed what is wanted. It returns an error if that does not come, or if the process
// has ended without it.
func (p *process) prints(what string, limit time.Duration, wanted func() bool) error {
	comesTrue(limit, 5*time.Millisecond, func() bool { return wanted() || !p.running() })
	if wanted() {
		return nil
	}
	return fmt.Errorf("%s did not print %s\nstdout: %s\nstderr: %s", p.cmd, what, &p.stdout, &p.stderr)
}

// ctl starts chubbyctl against the cell.
func (w *world) ctl(args ...string) *process {
	w.t.Helper()
	return spawn(w.t, nil, bin("chubbyctl"), append([]string{"--servers", w.servers()}, args...)...)
}

// result is what a command printed, and how it ended.
type result struct {
	out, err string
	code     int
}

// exits fails the test unless the command ended with that code.
func (r result) exits(t testing.TB, code int, what string) {
	t.Helper()
	failIf(t, r.code != code, "%s: exit %d, want %d\n%s%s", what, r.code, code, r.out, r.err)
}

// exits waits for the end of a process, and fails the test unless it comes in time and with that code.
func (p *process) exits(t testing.TB, within time.Duration, code int, what any) {
	t.Helper()
	got := p.wait(within)
	failIf(t, got != code, "%v: exit %d, want %d\n%s%s", what, got, code, &p.stdout, &p.stderr)
}

// do runs chubbyctl to its end.
func (w *world) do(args ...string) result {
	w.t.Helper()
	p := w.ctl(args...)
	code := p.wait(60 * time.Second)
	return result{out: p.stdout.String(), err: p.stderr.String(), code: code}
}

// must runs chubbyctl, which has to succeed, and returns what it printed. If args do not say how long it tries, it is patient.
func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.do(append([]string{"--timeout", patience(15 * time.Second).String()}, args...)...)
	if r.code != 0 {
		w.t.Fatalf("chubbyctl %s: exit %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// replica is one line of dev.json.
type replica struct {
	ID     string
	PID    int
	Client string
	HTTP   string
}

// replicas reads dev.json.
func (w *world) replicas() map[string]replica {
	w.t.Helper()
	text := must(os.ReadFile(filepath.Join(w.dir, "dev.json")))(w.t)
	var dev struct{ Replicas []replica }
	if err := json.Unmarshal(text, &dev); err != nil {
		w.t.Fatalf("dev.json: %v\n%s", err, text)
	}
	all := map[string]replica{}
	for _, r := range dev.Replicas {
		all[r.ID] = r
	}
	return all
}

// status is what cell status prints as JSON.
type status struct {
	Master   string
	Epoch    uint64
	Replicas []struct {
		ID      string
		Role    string
		Term    uint64
		Last    uint64 `json:"last"`
		Applied uint64
		Healthy bool
	}
}

func (w *world) status() status {
	w.t.Helper()
	var s status
	text := w.must("-o", "json", "cell", "status")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		w.t.Fatalf("cell status: %v\n%s", err, text)
	}
	return s
}

// kill9 kills a process that dev started.
func (w *world) kill9(pid int) {
	w.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.t.Fatalf("kill -9 %d: %v", pid, err)
	}
}

// serve starts one replica of the cell by its configuration file, as an operator does.
func (w *world) serve(id string) *process {
	w.t.Helper()
	cmd := command(bin("chubbyd"), "serve", "--config", filepath.Join(w.dir, id+".yaml"))
	cmd.Env = append(cmd.Env, w.env...)
	return launch(w.t, cmd, (*exec.Cmd).Start)
}
