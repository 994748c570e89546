package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// traffic is what clients of two versions do to a cell, from the beginning of a test to its
// end. Clients of this version are in the process of the test, with one session each; a
// client of a release is its chubbyctl, with a session for each command.
type traffic struct {
	cell    *rollingCell
	release release
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Time

	guard  *guardWitness
	pause  sync.RWMutex // held for reading during each operation
	actors sync.WaitGroup

	mu  sync.Mutex // guards err
	err error      // the first
}

func startTraffic(t *testing.T, cell *rollingCell, released release) *traffic {
	ctx, cancel := context.WithCancel(t.Context())
	l := &traffic{
		cell:    cell,
		release: released,
		ctx:     ctx,
		cancel:  cancel,
		began:   time.Now(),
	}
	t.Cleanup(l.stop)
	return l
}

// stop ends the traffic, and waits for its operations.
func (l *traffic) stop() {
	l.cancel()
	l.actors.Wait()
}

// repeat has an actor do something again and again, with pauses, until stop.
func (l *traffic) repeat(name string, pause time.Duration, operation func(ctx context.Context) error) {
	l.actors.Go(func() {
		for {
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(pause):
			}
			if err := l.once(operation); err != nil {
				l.report(fmt.Errorf("%s: %w", name, err))
				return
			}
		}
	})
}

// once does one operation to its end, also if the traffic is stopped meanwhile.
func (l *traffic) once(operation func(ctx context.Context) error) error {
	l.pause.RLock()
	defer l.pause.RUnlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), 60*time.Second)
	defer cancel()
	return operation(ctx)
}

func (l *traffic) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// check fails the test if an actor has met an error.
func (l *traffic) check() {
	l.cell.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	noErr(l.cell.t, l.err)
}

// whilePaused does something while no actor does anything.
func (l *traffic) whilePaused(do func()) {
	l.cell.t.Helper()
	l.pause.Lock()
	defer l.pause.Unlock()
	do()
}

// ctl runs the release's chubbyctl to its end.
func (l *traffic) ctl(ctx context.Context, args ...string) (result, error) {
	cmd := exec.CommandContext(ctx, l.release.bin("chubbyctl"), append([]string{"--servers", l.cell.servers(), "--timeout", "30s"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "CHUBBY_CELLS=", "CHUBBY_CONFIG=/dev/null")
	err := cmd.Run()
	r := result{out: stdout.String(), err: stderr.String(), code: cmd.ProcessState.ExitCode()}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	return r, err
}

// mustCtl runs the release's chubbyctl, which has to succeed.
func (l *traffic) mustCtl(ctx context.Context, args ...string) (string, error) {
	r, err := l.ctl(ctx, args...)
	if err == nil && r.code != 0 {
		err = fmt.Errorf("chubbyctl %s of %s: exit %d: %s%s", strings.Join(args, " "), l.release.name, r.code, r.out, r.err)
	}
	return r.out, err
}

// witnessDir sees whether two have the same lock at the same time. It is a directory, so that
// a shell can report to it, too.
type witnessDir string

// enter says that a holder begins, and with which token.
func (w witnessDir) enter(token uint64) error {
	if err := os.Mkdir(filepath.Join(string(w), "inside"), 0o700); err != nil {
		return fmt.Errorf("there are two holders: %w", err)
	}
	name := filepath.Join(string(w), "token")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	last, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return err
	}
	if token <= last {
		return fmt.Errorf("token %d comes after %d", token, last)
	}
	return os.WriteFile(name, fmt.Appendln(nil, token), 0o600)
}

// leave says that it ends.
func (w witnessDir) leave() error { return os.Remove(filepath.Join(string(w), "inside")) }

// witnessScript does what a holder does, in a shell: enter, work at the guarded server, say by which sequencer, and leave.
const witnessScript = `
mkdir "$0/inside" || { echo 'there are two holders' >&2; exit 90; }
read last <"$0/token"
[ "$CHUBBY_TOKEN" -gt "$last" ] || { echo "token $CHUBBY_TOKEN comes after $last" >&2; exit 91; }
echo "$CHUBBY_TOKEN" >"$0/token"
"$1" -guarded-work "$2" || { echo 'the guarded server refuses the holder' >&2; exit 92; }
echo "$CHUBBY_SEQUENCER"
rmdir "$0/inside"
`

// contend has clients of both versions want the lock of the guarded server.
func (l *traffic) contend() {
	l.cell.t.Helper()
	dir := l.contendByHandles()
	l.repeat("a contender of the release", 300*time.Millisecond, func(ctx context.Context) error {
		out, err := l.mustCtl(ctx, "acquire", guardedLock, "--", "sh", "-c", witnessScript, dir, os.Args[0], l.guard.server.Load().url)
		if err == nil {
			l.guard.past.add(strings.TrimSpace(out))
		}
		return err
	})
}

// contendByHandles has clients of this version want it. They report to a witness in the directory that it returns.
func (l *traffic) contendByHandles() (dir string) {
	t := l.cell.t
	t.Helper()
	l.guardTheLock()
	dir = t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(dir, "token"), []byte("0\n"), 0o600))
	for range 2 {
		c := l.cell.newClient(client.Config{})
		h := l.cell.handle(t.Context(), c, guardedLock)
		l.repeat("a contender", 30*time.Millisecond, func(ctx context.Context) error { return l.hold(ctx, c, h, witnessDir(dir)) })
	}
	return dir
}

// hold takes a lock, and gives it back. Its sequencer is valid in between, and not after.
func (l *traffic) hold(ctx context.Context, c *client.Client, h *client.Handle, w witnessDir) error {
	lock, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		return err
	}
	if err := w.enter(lock.Token()); err != nil {
		return err
	}
	text := lock.Sequencer().String()
	if err := c.CheckSequencer(ctx, text); err != nil {
		return fmt.Errorf("the holder's sequencer: %w", err)
	}
	if err := l.guard.work(ctx, text); err != nil {
		return err
	}
	l.guard.past.add(text)
	if err := errors.Join(lock.Err(), w.leave(), lock.Release(ctx)); err != nil {
		return err
	}
	err = c.CheckSequencer(ctx, text)
	if errors.Is(err, api.BadSequencer) {
		return nil
	}
	return errors.Join(errors.New("the sequencer of a lock that was released is not refused"), err)
}
