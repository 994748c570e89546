package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// actor is a process of the demonstration.
type actor struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu     sync.Mutex // guards output
	output bytes.Buffer
}

// Write takes what the process prints.
func (a *actor) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.output.Write(p)
}

// start starts one of the binaries.
func (s *story) start(name, binary string, args ...string) (*actor, error) {
	a := &actor{name: name, cmd: exec.Command(filepath.Join(s.dir, binary), args...), done: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = a, a
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = a.cmd.Wait() // its output says why it has ended
		close(a.done)
	}()
	s.actors[name] = a
	s.started = append(s.started, a)
	return a, nil
}

func (a *actor) signal(sig syscall.Signal) error {
	if err := a.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", a.name, err)
	}
	return nil
}

func (a *actor) running() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// waitFor returns the first line that contains text.
func (a *actor) waitFor(ctx context.Context, text string) (string, error) {
	for ; ctx.Err() == nil; rest(ctx) {
		a.mu.Lock()
		lines := strings.Split(a.output.String(), "\n")
		a.mu.Unlock()
		for _, line := range lines {
			if strings.Contains(line, text) {
				return line, nil
			}
		}
		if !a.running() {
			return "", fmt.Errorf("%s ended without saying %q; it said:\n%s", a.name, text, strings.Join(lines, "\n"))
		}
	}
	return "", fmt.Errorf("waiting for %s to say %q: %w", a.name, text, context.Cause(ctx))
}

// rest waits a moment.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// pass lets time pass.
func (s *story) pass(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *story) until(ctx context.Context, what string, done func() bool) error {
	for !done() {
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
		rest(ctx)
	}
	return nil
}

// ctl runs chubbyctl and returns what it prints.
func (s *story) ctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "chubbyctl"), append([]string{"--servers", s.servers()}, args...)...)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("chubbyctl %s: %w\n%s", strings.Join(args, " "), err, failed.Stderr)
	}
	return string(out), err
}

// primary returns the primary that the lock's file names.
func (s *story) primary(ctx context.Context) (string, error) {
	return s.ctl(ctx, "cat", "/ls/local/primary")
}

// awaitPrimary waits until another than that one is the primary.
func (s *story) awaitPrimary(ctx context.Context, other string) (name string, err error) {
	err = s.until(ctx, "a primary", func() bool {
		name, err = s.primary(ctx)
		return err == nil && name != "" && name != other
	})
	return name, err
}

// master returns the id of the cell's master, waiting for there to be one.
func (s *story) master(ctx context.Context) string {
	var status struct{ Master string }
	_ = s.until(ctx, "a master", func() bool {
		out, err := s.ctl(ctx, "-o", "json", "cell", "status")
		return err == nil && json.Unmarshal([]byte(out), &status) == nil && status.Master != ""
	})
	return status.Master
}

// replicaPID reads the process of a replica from dev.json.
func (s *story) replicaPID(id string) (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "cell", "dev.json"))
	if err != nil {
		return 0, err
	}
	var dev struct {
		Replicas []struct {
			ID  string
			PID int
		}
	}
	if err := json.Unmarshal(text, &dev); err != nil {
		return 0, err
	}
	for _, r := range dev.Replicas {
		if r.ID == id {
			return r.PID, nil
		}
	}
	return 0, fmt.Errorf("dev.json knows no replica %q", id)
}

// end stops all processes, the last one that was started first.
func (s *story) end() {
	for i := len(s.started) - 1; i >= 0; i-- {
		a := s.started[i]
		_ = a.signal(syscall.SIGCONT) // it may have ended
		_ = a.signal(syscall.SIGTERM)
		select {
		case <-a.done:
		case <-time.After(10 * time.Second):
			_ = a.signal(syscall.SIGKILL)
			<-a.done
		}
	}
	if s.dir != "" {
		if err := os.RemoveAll(s.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
