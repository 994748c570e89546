//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// TestMain makes this program the guardian of the tests' commands, too, and chubbyctl for tests that
// need a process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{guardianVerb, "put", "completion", "help", "version", "queue", "hello"}, os.Args[1]) {
		os.Exit(runCommandLine())
	}
	if len(os.Args) > 1 && os.Args[1] == "upgraded" {
		os.Exit(upgraded())
	}
	if len(os.Args) > 1 && os.Args[1] == "stuck" {
		os.Exit(stuck())
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup; with a handler it is as usual for what the tests start, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// The runtime's goroutine for signals must begin outside of every bubble.
	first := make(chan os.Signal, 1)
	signal.Notify(first, syscall.SIGUSR2)
	signal.Stop(first)
	os.Exit(m.Run())
}

// fakeLock is a lock that is lost when the test says.
type fakeLock struct {
	ctx       context.Context
	exclusive func() time.Duration
}

func (l fakeLock) Context() context.Context      { return l.ctx }
func (l fakeLock) Err() error                    { return context.Cause(l.ctx) }
func (l fakeLock) ExclusiveUntil() time.Duration { return l.exclusive() }

// liveSession is a session whose local lease has the time left that the test says.
type liveSession struct{ left atomic.Int64 }

func (s *liveSession) Session() api.SessionID { return 42 }
func (s *liveSession) Lease() time.Duration   { return api.MinLease }
func (s *liveSession) Left() time.Duration    { return time.Duration(s.left.Load()) }

func supervising(t *testing.T, argv ...string) *workOptions {
	t.Helper()
	program, err := supervise.Find(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	return &workOptions{
		globals: &globals{output: "text"}, path: api.MustParsePath("/ls/foo/a"), workCommand: workCommand{argv, program, make(chan os.Signal, 8)},
		terms: tenure.Terms{KillAfter: 100 * time.Millisecond}, out: io.Discard, err: io.Discard,
	}
}

// quickly is the environment of this process, without the second that the race
// detector keeps every process for.
func quickly() []string { return append(os.Environ(), "GORACE=atexit_sleep_ms=0") }

// long is how long the lock is ours in tests that are not about its end.
func long() time.Duration { return time.Hour }

// expiry is how long the lock is ours in a test that ends that when CMD is ready: to start CMD takes long on a busy machine.
type expiry struct{ end atomic.Pointer[time.Time] }

func (e *expiry) left() time.Duration {
	if end := e.end.Load(); end != nil {
		return time.Until(*end)
	}
	return long()
}

func (e *expiry) endsIn(d time.Duration) {
	end := time.Now().Add(d)
	e.end.Store(&end)
}

func newFIFO(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// firstLine waits for CMD to write a line into a fifo, and calls f then. If CMD never does, f is not called. What f waits for has
// to end with t.Context().
func firstLine(t *testing.T, fifo string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		line, err := os.ReadFile(fifo) // until CMD has closed it
		if err != nil {
			t.Error(err)
		}
		if len(line) > 0 {
			f()
		}
	}()
	t.Cleanup(func() {
		for {
			if w, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil { // ends the wait for a CMD that never opened it
				_ = w.Close()
			}
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

func TestCommandEnvironment(t *testing.T) {
	t.Setenv("CHUBBY_TOKEN", "of an outer acquire")
	o := supervising(t, "sh", "-c", `[ "$CHUBBY_LOCK,$CHUBBY_SEQUENCER,$CHUBBY_TOKEN,$CHUBBY_SESSION" = /ls/foo/a,seq,7,s42 ]`)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	env := tenure.Environment("CHUBBY_LOCK=/ls/foo/a", "CHUBBY_SEQUENCER=seq", "CHUBBY_TOKEN=7", "CHUBBY_SESSION=s42")
	if err := o.supervise(tenure.Command{Lock: fakeLock{t.Context(), long}, Session: &liveSession{}, Env: env}, request{}); err != nil {
		t.Errorf("CMD has another environment: %v", err)
	}
	if n := len(slices.DeleteFunc(env, func(s string) bool { return !strings.HasPrefix(s, "CHUBBY_TOKEN=") })); n != 1 {
		t.Errorf("CHUBBY_TOKEN is there %d times", n)
	}
}

// The cell says that the lock is lost: CMD is asked to end, and the exit code is that of the loss, even
// if CMD ends with 0.
func TestCommandWhenTheLockIsLost(t *testing.T) {
	fifo := newFIFO(t)
	ctx, lose := context.WithCancelCause(t.Context())
	cause := api.Errorf(api.LockLost, "broken by an operator")
	firstLine(t, fifo, func() { lose(cause) })
	o := supervising(t, "sh", "-c", `trap 'exit 0' TERM; echo >"$0"; while :; do sleep 0.01; done`, fifo)
	o.terms.KillAfter = 10 * time.Second
	err := o.supervise(tenure.Command{Lock: fakeLock{ctx, long}, Session: &liveSession{}, Env: quickly()}, request{})
	if exitCode(err) != exitLost || !errors.Is(err, api.LockLost) || !strings.Contains(err.Error(), "broken by an operator") {
		t.Errorf("exit code %d (%v), want %d with the cause", exitCode(err), err, exitLost)
	}
}

// The cell does not answer any more: CMD must be gone before another can have the lock, also if it
// ignores SIGTERM.
func TestCommandWhenTimeRunsOut(t *testing.T) {
	fifo := newFIFO(t)
	var ours expiry
	firstLine(t, fifo, func() { ours.endsIn(700 * time.Millisecond) })
	o := supervising(t, "sh", "-c", `trap '' TERM; echo >"$0"; while :; do sleep 0.01; done`, fifo)
	err := o.supervise(tenure.Command{Lock: fakeLock{t.Context(), ours.left}, Session: &liveSession{}, Env: quickly()}, request{})
	if exitCode(err) != exitLost || !errors.Is(err, api.LockLost) {
		t.Errorf("exit code %d (%v), want %d", exitCode(err), err, exitLost)
	}
}

// CMD gets a signal for jeopardy, and one for its end, if the user asked for them; neither stops it.
func TestJeopardyAndSafeSignals(t *testing.T) {
	fifo, warned := newFIFO(t), newFIFO(t)
	session, news := &liveSession{}, tenure.NewNews()
	session.left.Store(int64(time.Second))
	becomes := func(left time.Duration) func() {
		return func() {
			session.left.Store(int64(left))
			news.Hear(client.StateChange{Heard: "the certificate has expired"})
		}
	}
	firstLine(t, fifo, becomes(-1))
	firstLine(t, warned, becomes(time.Second)) // CMD has handled the first: a shell may run the traps of two signals in either order
	o := supervising(t, "sh", "-c", `trap 'echo >"$1"' USR1; trap 'exit 21' USR2; echo >"$0"; while :; do sleep 0.01; done`, fifo, warned)
	o.terms.Jeopardy, o.terms.Safe = syscall.SIGUSR1, syscall.SIGUSR2
	var told bytes.Buffer
	o.err = &told
	err := o.supervise(tenure.Command{Lock: fakeLock{t.Context(), long}, Session: session, Env: quickly(), News: news}, request{})
	if exitCode(err) != 21 {
		t.Errorf("exit code %d (%v), want 21: CMD's own", exitCode(err), err)
	}
	if !strings.Contains(told.String(), "does not answer: the certificate has expired; CMD is stopped in") {
		t.Errorf("told %q", &told)
	}
}

// A command that is being stopped gets no signal that it is safe, although the cell answers again: it
// might not end in time then.
func TestSafeTooLate(t *testing.T) {
	fifo := newFIFO(t)
	session, news := &liveSession{}, tenure.NewNews()
	session.left.Store(-1)
	heard := func() { news.Hear(client.StateChange{Heard: "why"}) }
	var ours expiry
	firstLine(t, fifo, func() {
		heard() // CMD runs: jeopardy
		ours.endsIn(2 * time.Second)
	})
	o := supervising(t, "sh", "-c", `trap 'exit 21' USR2; trap 'echo >"$1"; stopped=1' TERM; echo >"$0"; while :; do sleep 0.01; done`, fifo, newFIFO(t))
	o.terms.KillAfter = time.Second
	o.terms.Safe = syscall.SIGUSR2
	firstLine(t, o.argv[4], func() { // CMD was asked to end
		session.left.Store(int64(time.Second))
		heard()
	})
	err := o.supervise(tenure.Command{
		Lock: fakeLock{t.Context(), ours.left}, Session: session, Env: quickly(), News: news,
	}, request{})
	if exitCode(err) != exitLost || !strings.Contains(err.Error(), "ended with 137") || !strings.Contains(err.Error(), "could have it: why; CMD") {
		t.Errorf("exit code %d (%v), want %d: killed, and not told that it is safe", exitCode(err), err, exitLost)
	}
}

// A lock that was lost before CMD could be started starts nothing.
func TestLostBeforeTheStart(t *testing.T) {
	ctx, lose := context.WithCancelCause(t.Context())
	mark := filepath.Join(t.TempDir(), "started")
	o := supervising(t, "sh", "-c", `: >"$0"`, mark)
	late := o.supervise(tenure.Command{Lock: fakeLock{ctx, func() time.Duration { return 0 }}, Session: &liveSession{}, Env: quickly()}, request{})
	lose(api.Errorf(api.LockLost, "broken"))
	lost := o.supervise(tenure.Command{Lock: fakeLock{ctx, long}, Session: &liveSession{}, Env: quickly()}, request{})
	for what, err := range map[string]error{"late": late, "lost": lost} {
		if exitCode(err) != exitLost {
			t.Errorf("%s: exit code %d (%v), want %d", what, exitCode(err), err, exitLost)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("CMD was started")
	}
}

// candidateNotice is what a user is told, and a file that appears once it was told.
type candidateNotice struct {
	bytes.Buffer
	file string // "": none
}

func (n *candidateNotice) Write(p []byte) (int, error) {
	written, err := n.Buffer.Write(p)
	if err == nil && n.file != "" && strings.Contains(n.String(), "goes first") {
		err = os.WriteFile(n.file, nil, 0o600)
	}
	return written, err
}

// The user is told that another should have the lock. CMD is asked to end for that only with --yield,
// and its exit code is its own.
func TestYield(t *testing.T) {
	for _, yield := range []bool{true, false} {
		fifo := newFIFO(t)
		asked := make(chan struct{})
		firstLine(t, fifo, func() { close(asked) })
		told := candidateNotice{file: filepath.Join(t.TempDir(), "told")}
		o := supervising(t, "sh", "-c", `trap 'exit 22' TERM; echo >"$0"; for i in $(seq 2000); do [ -e "$1" ] && exit 0; sleep 0.01; done; exit 1`, fifo, told.file)
		o.terms.KillAfter = 10 * time.Second // for a machine that is slow to run its trap
		if yield {
			told.file = "" // it is to end because it is asked
		}
		o.err = &told
		err := o.supervise(tenure.Command{Lock: fakeLock{t.Context(), long}, Session: &liveSession{}, Env: quickly()}, request{asked: asked, yield: yield, told: (&electOptions{yield: yield}).describeCandidate})
		if got := exitCode(err); got != map[bool]int{true: 22, false: 0}[yield] || !strings.Contains(told.String(), "goes first") {
			t.Errorf("yield %t: exit code %d (%v); told %q", yield, got, err, told.String())
		}
	}
}

// A program whose interpreter there is not is found, and cannot be run.
func TestCommandThatIsNotBegun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(program, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for argv, begun := range map[string]bool{program: false, "false": true} {
		err := supervising(t, argv).supervise(tenure.Command{Lock: fakeLock{t.Context(), long}, Session: &liveSession{}, Env: quickly()}, request{})
		if got := !errors.As(err, new(tenure.NotBegun)); err == nil || got != begun || !begun && exitCode(err) != supervise.ExitNotFound {
			t.Errorf("%s: %v (exit code %d), begun: %t", argv, err, exitCode(err), got)
		}
	}
}
