package processes

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	endLimit   = 20 * time.Second // for a process that was asked to end
	maxLine    = 1 << 20          // bytes of a line that is given to the function of Run
	maxOutput  = 1 << 20          // bytes that are kept of the output, from its beginning
	raceReport = "WARNING: DATA RACE"
)

// Process is a child of a test. Its methods are safe for concurrent use.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	input io.Closer
	done  chan struct{} // closed when it has ended, and its output was read
	end   sync.Once

	mu    sync.Mutex // guards what follows
	said  bytes.Buffer
	raced bool
}

// Run starts a process, which ends with the test at the latest: its standard input, which
// stays empty, ends then, and it gets SIGTERM. line is called with each line that it prints,
// in order, and keeps Output from it by true; it may be nil. The test fails if the process
// reports a data race, and shows what it has printed if it has failed.
func Run(t testing.TB, cmd *exec.Cmd, line func(string) (taken bool)) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, done: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.input, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close() // the process has its own
	go func() {
		defer close(p.done)
		p.read(out, line)
		_ = cmd.Wait() // how it has ended is looked at where it matters
	}()
	t.Cleanup(func() {
		p.End(syscall.SIGTERM)
		p.mu.Lock()
		raced := p.raced
		p.mu.Unlock()
		switch {
		case raced:
			t.Errorf("%v has a data race:\n%s", cmd.Args, p.Output())
		case t.Failed():
			t.Logf("%v printed:\n%s", cmd.Args, p.Output())
		}
	})
	return p
}

// read reads what the process prints, to the end.
func (p *Process) read(out io.ReadCloser, line func(string) bool) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		text := lines.Text()
		if line != nil && line(text) {
			continue
		}
		p.mu.Lock()
		p.raced = p.raced || strings.Contains(text, raceReport)
		if p.said.Len() < maxOutput {
			p.said.WriteString(text + "\n")
		}
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, out) // of a line that is too long
}

// Output returns what it has printed until now, without the lines that were taken: a megabyte
// at most, from the beginning.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// Signal sends a signal. It fails the test if the process has ended. After SIGSTOP it
// returns when the process is stopped, see Halt.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := sendTo(p.cmd.Process, s); err != nil {
		p.t.Fatalf("%v to %v: %v", s, p.cmd.Args, err)
	}
}

// CloseInput ends its standard input, which asks some programs to end.
func (p *Process) CloseInput() { _ = p.input.Close() } // it may have ended

// Done is closed when the process has ended, and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// End continues the process if it was stopped, ends its standard input, sends it a signal
// unless that is nil, and returns when it has ended. If it has not after 20 s, it is killed,
// and the test fails. Later calls do nothing.
func (p *Process) End(s os.Signal) {
	p.t.Helper()
	p.end.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
		if s != nil {
			_ = p.cmd.Process.Signal(s)
		}
		p.CloseInput()
		select {
		case <-p.done:
		case <-time.After(endLimit):
			p.t.Errorf("%v has not ended within %v, and is killed", p.cmd.Args, endLimit)
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
}

// ExitCode waits until the process has ended, and returns its exit code, -1 if a signal has
// ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}
